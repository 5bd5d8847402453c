// Command goworker is a program with metrics of its own, for tests.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	outsight "outsight/sdk/go"
)

func main() {
	outsight.NewCounter("jobs_done", "{job}", "Jobs that were done").Add(1000)
	outsight.NewGauge("queue_length", "{job}", "Jobs that wait").Set(-7.5)
	outsight.NewFloatCounter("work_seconds", "s", "Time at work").Add(0.25)
	outsight.NewCounter("requests", "{request}", "Requests", outsight.Label{Name: "method", Value: "GET"}).Add(5)
	runtime.GC()
	outsight.Runtime()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}
