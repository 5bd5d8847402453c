// Command node is a process of a cluster of bench/cluster: a data node, a worker or the driver.
package main

import (
	"fmt"
	"os"
	"strconv"

	"outsight/bench/cluster"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: node BYTES")
		os.Exit(2)
	}
	size, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err == nil {
		err = cluster.Serve(size)
	}
	fmt.Fprintln(os.Stderr, "node:", err)
	os.Exit(1)
}
