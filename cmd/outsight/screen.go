package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// screen draws one text over the other on a terminal, and one after the other elsewhere.
type screen struct {
	out   io.Writer
	drawn bool
}

func (s *screen) draw(text []byte) error {
	if !isTerminal(s.out) {
		if s.drawn {
			text = append([]byte("\n"), text...)
		}
		s.drawn = true
		_, err := s.out.Write(text)
		return err
	}
	_, height, err := term.GetSize(int(s.out.(*os.File).Fd()))
	if err != nil {
		return fmt.Errorf("reading the terminal's size: %w", err)
	}
	// Home, each line with what was behind it cleared, then what was below: no flicker.
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	lines = lines[:min(len(lines), height-1)]
	var b bytes.Buffer
	if !s.drawn {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.Write(line)
		b.WriteString("\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	s.drawn = true
	_, err = s.out.Write(b.Bytes())
	return err
}
