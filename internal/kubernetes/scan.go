package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// cutter cuts JSON text into values and holds no more than one of them, at most max bytes. A
// longer one is passed over. Whether a value is well-formed is for json.Unmarshal to say.
type cutter struct {
	r     *bufio.Reader
	value []byte
	max   int
}

func newCutter(r io.Reader, max int) *cutter {
	return &cutter{r: bufio.NewReaderSize(r, 32<<10), max: max}
}

// errTooLarge says that a value was passed over because of its length.
var errTooLarge = errors.New("longer than is accepted")

// peek is the next byte that is no white space.
func (c *cutter) peek() (byte, error) {
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, c.r.UnreadByte()
		}
	}
}

// expect reads one of the bytes in any.
func (c *cutter) expect(any string) (byte, error) {
	b, err := c.peek()
	if err != nil {
		return 0, unexpected(err)
	}
	for i := range len(any) {
		if any[i] == b {
			_, err := c.r.ReadByte()
			return b, err
		}
	}
	return 0, fmt.Errorf("got %q in JSON, want one of %q", b, any)
}

// next cuts off the next value. The answer is valid until the next call. The error is io.EOF only
// where no value has begun, and errTooLarge for one that was passed over.
func (c *cutter) next() ([]byte, error) {
	c.value = c.value[:0]
	if _, err := c.peek(); err != nil {
		return nil, err
	}
	var s scanner
	large := false
	for {
		chunk, err := c.r.Peek(max(1, c.r.Buffered()))
		if len(chunk) == 0 {
			if s.bare && errors.Is(err, io.EOF) {
				break // a number ends with the text
			}
			return nil, unexpected(err)
		}
		used, done := s.scan(chunk)
		if large = large || len(c.value)+used > c.max; !large {
			c.value = append(c.value, chunk[:used]...)
		}
		if _, err := c.r.Discard(used); err != nil {
			return nil, unexpected(err)
		}
		if done {
			break
		}
	}
	if large {
		c.value = nil // its length is no measure for the next ones
		return nil, errTooLarge
	}
	return c.value, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// scanner finds the end of a value.
type scanner struct {
	depth               int
	text, escaped, bare bool
}

// scan reports how many bytes of chunk belong to the value, and whether it ends there.
func (s *scanner) scan(chunk []byte) (used int, done bool) {
	for i, b := range chunk {
		switch {
		case s.escaped:
			s.escaped = false
		case s.text:
			if b == '\\' {
				s.escaped = true
			} else if b == '"' {
				if s.text = false; s.depth == 0 {
					return i + 1, true
				}
			}
		case s.bare:
			if b == ',' || b == ']' || b == '}' || b == ' ' || b == '\n' || b == '\r' || b == '\t' {
				return i, true
			}
		case b == '"':
			s.text = true
		case b == '{' || b == '[':
			s.depth++
		case b == '}' || b == ']':
			if s.depth--; s.depth <= 0 {
				return i + 1, true
			}
		case s.depth == 0:
			s.bare = true
		}
	}
	return len(chunk), false
}

// listMeta is what a list says of itself.
type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

// list reads a list object and hands the JSON of each item to item, whose error ends it. A nil
// text stands for an item that was too large.
func (c *cutter) list(item func(text []byte) error) (meta listMeta, err error) {
	if _, err := c.expect("{"); err != nil {
		return meta, err
	}
	for first := true; ; first = false {
		want := ",}"
		if first {
			want = `"}`
		}
		b, err := c.expect(want)
		if err != nil {
			return meta, err
		}
		if b == '}' {
			return meta, nil
		}
		if b == '"' {
			if err := c.r.UnreadByte(); err != nil {
				return meta, err
			}
		}
		if err := c.field(&meta, item); err != nil {
			return meta, err
		}
	}
}

// field reads one field of a list object.
func (c *cutter) field(meta *listMeta, item func([]byte) error) error {
	text, err := c.next()
	if err != nil {
		return unexpected(err)
	}
	var key string
	if err := json.Unmarshal(text, &key); err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	if _, err := c.expect(":"); err != nil {
		return err
	}
	b, err := c.peek()
	if err != nil {
		return unexpected(err)
	}
	if key == "items" && b == '[' {
		return c.items(item)
	}
	text, err = c.next()
	if err != nil {
		return unexpected(err)
	}
	if key == "metadata" {
		if err := json.Unmarshal(text, meta); err != nil {
			return fmt.Errorf("reading a list: %w", err)
		}
	}
	return nil
}

func (c *cutter) items(item func([]byte) error) error {
	if _, err := c.expect("["); err != nil {
		return err
	}
	if b, err := c.peek(); err == nil && b == ']' {
		_, err := c.r.ReadByte()
		return err
	}
	for {
		text, err := c.next()
		if errors.Is(err, errTooLarge) {
			text, err = nil, nil
		}
		if err != nil {
			return unexpected(err)
		}
		if err := item(text); err != nil {
			return err
		}
		b, err := c.expect(",]")
		if err != nil || b == ']' {
			return err
		}
	}
}
