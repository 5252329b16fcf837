"""Whether the tests notice faults: each mutation of `catalogue` is put into a copy of the package, and tests are run.

python tests/mutations --check                  every mutation fits the sources (seconds)
python tests/mutations --collect                run all tests once, and record which functions each of them reaches
python tests/mutations --tier core              run, for each mutation, the tests that reach it; --tier all: of both
python tests/mutations --only Hinge --seconds 60

sources      finds functions by their names, and puts a mutation into them
reach        which functions a compiled one consists of, and which modules are made of which
hook         what a process of the collecting run records, also one that a test starts
recording    the pytest plugin of the collecting run, and what it leaves
choosing     which tests are run for a mutation, and in which order
ordering     the pytest plugin that runs them
trees        copies of the sources, and their compiled kernels
running      one mutation after the other, on several copies
"""
