"""Estimators for scikit-learn over the same engine. Its names (X, y, coef_, random_state) stay in this room."""

try:
    from sklearn.utils.validation import validate_data as _validate_data  # noqa: F401  (new in 1.6)
except ImportError as error:
    raise ImportError(
        f"StreamSVC and TableHasher need scikit-learn 1.6 or newer: pip install 'streamsvm[sklearn]' ({error})"
    ) from error
