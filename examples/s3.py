"""Data, checkpoints and the model in a bucket, with credentials from the environment.

    python examples/s3.py

The server is moto's, on this machine, which speaks S3. For a real one leave out endpoint_url; where credentials are
where boto3 finds them (profiles, AWS_ACCESS_KEY_ID, ...), leave out storage_options altogether.
"""

import logging
import os
import sys

from streamsvm import load_model, load_settings, train

try:
    import s3fs
    from moto.server import ThreadedMotoServer
except ImportError as missing:
    sys.exit(f"{missing}: pip install s3fs 'moto[server]'")

logging.getLogger("werkzeug").setLevel("ERROR")  # the server would tell of every request
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host, port = server.get_host_and_port()
os.environ |= {"SHOP_S3": f"http://{host}:{port}", "SHOP_KEY": "somebody", "SHOP_SECRET": "very-secret"}

files = s3fs.S3FileSystem(endpoint_url=os.environ["SHOP_S3"], key="somebody", secret="very-secret")
files.mkdir("shop")
for part in ("train", "test"):
    files.put(f"examples/data/a9a.{part}.svm.gz", f"shop/data/{part}.svm.gz")

settings = load_settings(
    overrides={
        "data.train": "s3://shop/data/train.svm.gz",
        "data.test": "s3://shop/data/test.svm.gz",
        "solver.passes": 3,
        "output.model": "s3://shop/models/income.safetensors",
        "checkpoint.dir": "s3://shop/checkpoints",  # a machine that takes over goes on from here
        "checkpoint.resume": True,
        # ${...} is looked up when the bucket is opened: it is printed and stored as it stands here.
        "storage_options": {"s3": {"endpoint_url": "${SHOP_S3}", "key": "${SHOP_KEY}", "secret": "${SHOP_SECRET}"}},
    }
)
outcome = train(settings)
print(f"test error {100 * outcome.result['test']['error']:.2f} %\n")
print("in the bucket:", *files.find("shop"), sep="\n  ")

model = load_model("s3://shop/models/income.safetensors")
print("\nthe model that was loaded from it is the same:", bool((model.weights == outcome.model.weights).all()))
print("credentials in the bucket:", any(b"very-secret" in files.cat(name) for name in files.find("shop")))
server.stop()
