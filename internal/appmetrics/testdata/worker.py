# SPDX-License-Identifier: Apache-2.0
"""A program with metrics of its own, for tests."""
import gc
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../sdk/python"))
import outsight

jobs = outsight.counter("jobs_done", "{job}", "Jobs that were done")
jobs.add(999)
jobs.add()
outsight.gauge("queue_length", "{job}", "Jobs that wait").set(-7.5)
outsight.counter("work_seconds", "s", "Time at work", fine=True).add(0.25)
outsight.counter("requests", "{request}", "Requests", method="GET").add(5)
gc.collect()
outsight.runtime()
if os.fork() == 0:
    jobs.add(5)  # of the child alone
    print("child", flush=True)
    time.sleep(1)  # one that ends at once may be lost: docs/appmetrics.md
    os._exit(0)
os.wait()
print("ready", flush=True)
sys.stdin.read()
