package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// database is a connection to PostgreSQL by the simple query protocol, of the user postgres, who is trusted.
type database struct {
	conn   net.Conn
	reader *bufio.Reader
}

func openDatabase(address string) (*database, error) {
	conn, err := dial(address)
	if err != nil {
		return nil, err
	}
	d := &database{conn, bufio.NewReader(conn)}
	const parameters = "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	if err := d.send(nil, parameters); err != nil {
		return nil, err
	}
	return d, d.ready()
}

// send sends a message: its type, which the first has none of, its length, and the rest.
func (d *database) send(kind []byte, rest string) error {
	message := binary.BigEndian.AppendUint32(kind, uint32(len(rest)+4))
	_, err := d.conn.Write(append(message, rest...))
	return err
}

// query runs a statement and passes over what it gives.
func (d *database) query(text string) error {
	if err := d.send([]byte{'Q'}, text+"\x00"); err != nil {
		return err
	}
	return d.ready()
}

// ready reads messages until the server waits for the next query.
func (d *database) ready() error {
	var failed error
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(d.reader, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(d.reader, body); err != nil {
			return err
		}
		switch head[0] {
		case 'E':
			failed = fmt.Errorf("PostgreSQL: %q", body)
		case 'Z':
			return failed
		}
	}
}
