package region

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Key is a secret that a reader and a host share, with the number by which they name it.
type Key struct {
	ID     uint32
	Secret []byte
}

// leastKeyBytes is the least length of a secret: 128 bits.
const leastKeyBytes = 16

// maxKeys bounds a file of keys.
const maxKeys = 256

// ParseKeys reads keys, one a line: a number, a space, and the secret in hexadecimal digits, 16 bytes or more. Empty
// lines and those that begin with # are none. A reader uses the first; a host takes all, so that a new one can be added
// on hosts before readers use it.
func ParseKeys(text []byte) (keys []Key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	known := map[uint32]bool{}
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		id, digits, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q is no number of a key", number, id)
		}
		secret, err := hex.DecodeString(strings.TrimSpace(digits))
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: the secret is no hexadecimal number", number) // it is not to be shown
		case len(secret) < leastKeyBytes:
			return nil, fmt.Errorf("line %d: a secret of %d bytes, want %d or more", number, len(secret), leastKeyBytes)
		case known[uint32(n)]:
			return nil, fmt.Errorf("line %d: key %d is there twice", number, n)
		case len(keys) == maxKeys:
			return nil, fmt.Errorf("line %d: more than %d keys", number, maxKeys)
		}
		known[uint32(n)] = true
		keys = append(keys, Key{uint32(n), secret})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("no key in it: want lines of a number and a secret in hexadecimal digits")
	}
	return keys, nil
}
