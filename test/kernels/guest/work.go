package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

// What one transaction carries. The reply's first part is written, the second sent from a file:
// older kernels take another way for that.
const (
	requestBytes = 100
	writtenBytes = 1000
	fileBytes    = 3000
	replyBytes   = writtenBytes + fileBytes
)

// work is the program that a watched process runs.
func work(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: guest serve ADDRESS | ask ADDRESS CONNECTIONS REQUESTS | spin | eat BYTES | features")
	}
	switch name, rest := arguments[0], arguments[1:]; name {
	case "serve":
		return serve(rest[0])
	case "ask":
		connections, requests, err := twoNumbers(rest[1:])
		if err != nil {
			return err
		}
		return ask(rest[0], connections, requests)
	case "forward": // passes packets on, in the namespace that it runs in
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	case "features":
		return printFeatures()
	case "spin":
		for end := time.Now().Add(time.Hour); time.Now().Before(end); { // it is killed before
		}
		return nil
	case "eat":
		bytes, err := strconv.Atoi(rest[0])
		if err != nil {
			return err
		}
		for eaten := make([]byte, bytes); bytes > 0; bytes -= os.Getpagesize() {
			eaten[bytes-1] = 1
		}
		return errors.New("memory was to be short")
	default:
		return fmt.Errorf("there is no work %q", name)
	}
}

func twoNumbers(texts []string) (a, b int, err error) {
	if a, err = strconv.Atoi(texts[0]); err == nil {
		b, err = strconv.Atoi(texts[1])
	}
	return a, b, err
}

// serve answers until its standard input ends.
func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(conn.(*net.TCPConn))
	}
}

func answer(conn *net.TCPConn) error {
	defer conn.Close()
	file, err := os.Open(os.Args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	request, part := make([]byte, requestBytes), make([]byte, writtenBytes)
	for {
		if _, err := io.ReadFull(conn, request); err != nil {
			return err
		}
		if _, err := conn.Write(part); err != nil {
			return err
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := conn.ReadFrom(io.LimitReader(file, fileBytes)); err != nil { // sendfile
			return err
		}
	}
}

// ask makes its requests one after another, on one connection after another.
func ask(address string, connections, requests int) error {
	request, reply := make([]byte, requestBytes), make([]byte, replyBytes)
	for range connections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		for range requests {
			if _, err := conn.Write(request); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, reply); err != nil {
				return err
			}
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}
