// Command guest is everything that runs in a test machine beside the tested binaries: its first
// process, and the programs that the agent there watches.
package main

import (
	"fmt"
	"os"
)

func main() {
	if os.Getpid() == 1 {
		boot()
	}
	if err := work(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}
