package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// listen is where it serves.
const listen = ":8080"

func main() {
	err := fmt.Errorf("usage: apps pool ADDRESS CONNECTIONS | apps work ADDRESS MICROSECONDS | apps log FILE BYTES | apps gate ADDRESS AT-ONCE | apps pause - MICROSECONDS")
	if len(os.Args) == 4 {
		var n int
		if n, err = strconv.Atoi(os.Args[3]); err == nil {
			switch os.Args[1] {
			case "pool":
				err = servePool(os.Args[2], n)
			case "work":
				err = serveWork(os.Args[2], time.Duration(n)*time.Microsecond)
			case "log":
				err = serveLog(os.Args[2], n)
			case "gate":
				err = serveGate(os.Args[2], n)
			case "pause":
				err = servePause(time.Duration(n) * time.Microsecond)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "apps:", err)
	os.Exit(1)
}

// dial tries until the server is there.
func dial(address string) (net.Conn, error) {
	var err error
	for range 100 {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil {
			return c, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

// servePool answers a request with what a query over one of so many connections to PostgreSQL gives.
func servePool(address string, connections int) error {
	free := make(chan *database, connections)
	for range connections {
		d, err := openDatabase(address)
		if err != nil {
			return err
		}
		free <- d
	}
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d := <-free
		defer func() { free <- d }()
		if err := d.query("SELECT pg_sleep(0.02)"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "slept")
	}))
}

// serveWork answers a request after some CPU time and an increment in Redis.
func serveWork(address string, work time.Duration) error {
	free := make(chan *bufio.ReadWriter, 256)
	steps := calibrate(work)
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var c *bufio.ReadWriter
		select {
		case c = <-free:
		default:
			conn, err := dial(address)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			c = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
		}
		fmt.Fprint(c, "INCR requests\r\n")
		err := c.Flush()
		var line string
		if err == nil {
			line, err = c.ReadString('\n')
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		select {
		case free <- c:
		default:
		}
		fmt.Fprintln(w, line, spin(steps))
	}))
}

// serveLog answers a request when so many bytes are on the disk, at the end of a file. One is written at a time.
func serveLog(path string, length int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	record := make([]byte, length)
	var writing sync.Mutex
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writing.Lock()
		_, err := f.Write(record)
		err = errors.Join(err, f.Sync())
		writing.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "written")
	}))
}

// serveGate answers a request with what another server does, so many of which it asks at a time, each over a connection of
// its own: how many that are is not seen.
func serveGate(address string, atOnce int) error {
	gate := make(chan struct{}, atOnce)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		gate <- struct{}{}
		defer func() { <-gate }()
		answer, err := client.Get("http://" + address + "/")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		io.Copy(w, answer.Body)
	}))
}

// servePause answers a request after a time in which it does nothing.
func servePause(d time.Duration) error {
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(d)
		fmt.Fprintln(w, "paused")
	}))
}

// calibrate finds how many steps of spin take that long on an idle CPU: the shortest of some trials.
func calibrate(d time.Duration) int {
	const trial = 1 << 20
	least := time.Hour
	for range 20 {
		begin := time.Now()
		runtime.KeepAlive(spin(trial)) // no compiler leaves it out
		least = min(least, time.Since(begin))
	}
	return max(int(float64(trial)*float64(d)/float64(least)), 1)
}

// spin takes CPU time in proportion to its steps.
func spin(steps int) (x uint32) {
	x = 1
	for range steps {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
	}
	return x
}
