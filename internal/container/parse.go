package container

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"outsight/internal/model"
)

// The parsers of control group files. None of them allocates, unless it fails. A text that does
// not end with a newline was cut off: the kernel writes whole lines.
var (
	errCut    = errors.New("the text ends within a line")
	errNumber = errors.New("not a number")
)

// lines cuts a text into lines of words.
type lines struct{ rest []byte }

func newLines(text []byte) (lines, error) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return lines{}, errCut
	}
	return lines{rest: text}, nil
}

func (l *lines) next() (line []byte, ok bool) {
	if len(l.rest) == 0 {
		return nil, false
	}
	end := bytes.IndexByte(l.rest, '\n')
	if end < 0 { // newLines made sure that there is one
		end = len(l.rest) - 1
	}
	line, l.rest = l.rest[:end], l.rest[end+1:]
	return line, true
}

// word cuts off the first word of a line.
func word(line []byte) (first, rest []byte) {
	for len(line) > 0 && line[0] == ' ' {
		line = line[1:]
	}
	end := bytes.IndexByte(line, ' ')
	if end < 0 {
		return line, nil
	}
	return line[:end], line[end+1:]
}

func parseUint(text []byte) (uint64, error) {
	if len(text) == 0 {
		return 0, errNumber
	}
	n := uint64(0)
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, errNumber
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, errNumber
		}
		n = n*10 + digit
	}
	return n, nil
}

// parseValue reads a file that holds one number, or "max" for none (0).
func parseValue(text []byte) (uint64, error) {
	l, err := newLines(text)
	if err != nil {
		return 0, err
	}
	line, _ := l.next()
	if len(l.rest) > 0 {
		return 0, errNumber
	}
	if string(line) == "max" {
		return 0, nil
	}
	return parseUint(line)
}

// unlimited is the least limit that a v1 file shows where there is none: all pages of an int64,
// whatever the size of a page (up to 64 KiB).
const unlimited = math.MaxInt64 &^ 0xffff

// memoryStat is what is used of memory.stat.
type memoryStat struct {
	rss, cache, inactiveFile, faults, majorFaults, limit uint64
	// Not every kernel has these.
	anonRefaults, fileRefaults uint64
	hasRefaults                bool
}

const (
	sawRSS = 1 << iota
	sawCache
	sawInactiveFile
	sawFaults
	sawMajorFaults
	sawMemory = 1<<iota - 1
)

// parseMemoryStat reads memory.stat: of v1 the lines that include the groups below, of v2 all
// lines do. The limit, of v1 alone, is the least one of the group and those above it, 0 if none.
func parseMemoryStat(text []byte, v2 bool) (s memoryStat, err error) {
	l, err := newLines(text)
	if err != nil {
		return s, err
	}
	seen := 0
	for line, ok := l.next(); ok; line, ok = l.next() {
		key, value := word(line)
		field, bit := s.field(key, v2)
		if field == nil {
			continue
		}
		if *field, err = parseUint(value); err != nil {
			return s, fmt.Errorf("line %q: %w", line, err)
		}
		seen |= bit
	}
	if seen != sawMemory {
		return s, fmt.Errorf("lines are missing (has %05b of %05b)", seen, sawMemory)
	}
	if s.limit >= unlimited {
		s.limit = 0
	}
	return s, nil
}

func (s *memoryStat) field(key []byte, v2 bool) (*uint64, int) {
	if !v2 {
		if string(key) == "hierarchical_memory_limit" {
			return &s.limit, 0
		}
		rest, ok := bytes.CutPrefix(key, totalPrefix)
		if !ok {
			return nil, 0
		}
		key = rest
		switch string(key) {
		case "rss":
			return &s.rss, sawRSS
		case "cache":
			return &s.cache, sawCache
		}
	} else {
		switch string(key) {
		case "anon":
			return &s.rss, sawRSS
		case "file":
			return &s.cache, sawCache
		}
	}
	switch string(key) {
	case "inactive_file":
		return &s.inactiveFile, sawInactiveFile
	case "pgfault":
		return &s.faults, sawFaults
	case "pgmajfault":
		return &s.majorFaults, sawMajorFaults
	case "workingset_refault_anon":
		return &s.anonRefaults, 0
	case "workingset_refault_file", "workingset_refault": // of files alone until 5.9
		s.hasRefaults = true
		return &s.fileRefaults, 0
	}
	return nil, 0
}

var totalPrefix = []byte("total_")

// parseKey reads the number of one key of a file with a key and a number in each line, as
// memory.oom_control and memory.events. found is false where no line has the key.
func parseKey(text []byte, key string) (value uint64, found bool, err error) {
	l, err := newLines(text)
	if err != nil {
		return 0, false, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		name, rest := word(line)
		if string(name) != key {
			continue
		}
		if value, err = parseUint(rest); err != nil {
			return 0, false, fmt.Errorf("line %q: %w", line, err)
		}
		return value, true, nil
	}
	return 0, false, nil
}

// parseQuota reads cpu.max of v2, "50000 100000" or "max 100000", or cpu.cfs_quota_us of v1,
// "50000" or "-1", which does not say the period. No quota is 0.
func parseQuota(text []byte) (quota, period uint64, err error) {
	l, err := newLines(text)
	if err != nil {
		return 0, 0, err
	}
	line, _ := l.next()
	first, rest := word(line)
	if string(first) == "max" || string(first) == "-1" {
		return 0, 0, nil
	}
	if quota, err = parseUint(first); err == nil && len(rest) > 0 {
		period, err = parseUint(rest)
	}
	return quota, period, err
}

// parseThrottle reads cpu.stat of either version. found is false where the group has no
// bandwidth control: the root, and v2 groups without the cpu controller.
func parseThrottle(text []byte) (t model.ThrottleCounters, found bool, err error) {
	l, err := newLines(text)
	if err != nil {
		return t, false, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		key, value := word(line)
		field, unit := &t.ThrottledNS, uint64(1)
		switch string(key) {
		case "nr_periods":
			field, found = &t.Periods, true
		case "nr_throttled":
			field = &t.ThrottledPeriods
		case "throttled_time":
		case "throttled_usec":
			unit = 1000
		default:
			continue
		}
		n, err := parseUint(value)
		if err != nil {
			return t, false, fmt.Errorf("line %q: %w", line, err)
		}
		*field = n * unit
	}
	return t, found, nil
}

// parseBlkio adds up the reads and the writes of all devices in a v1 blkio file, and counts the
// devices: without any the kernel does not count for this group.
func parseBlkio(text []byte) (reads, writes uint64, devices int, err error) {
	l, err := newLines(text)
	if err != nil {
		return 0, 0, 0, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		device, rest := word(line)
		if bytes.IndexByte(device, ':') < 0 {
			continue // the sum over all devices
		}
		operation, value := word(rest)
		n, err := parseUint(value)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("line %q: %w", line, err)
		}
		switch string(operation) {
		case "Read":
			reads += n
			devices++
		case "Write":
			writes += n
		}
	}
	return reads, writes, devices, nil
}

// parseIOStat adds up the lines of a v2 io.stat, one for each device. Keys that are not known
// are passed over; a device may have none at all.
func parseIOStat(text []byte) (d model.DiskCounters, err error) {
	if len(text) == 0 {
		return d, nil // no device was used yet
	}
	l, err := newLines(text)
	if err != nil {
		return d, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		_, rest := word(line)
		for len(rest) > 0 {
			var pair []byte
			pair, rest = word(rest)
			at := bytes.IndexByte(pair, '=')
			if at < 0 {
				continue
			}
			field := ioField(&d, pair[:at])
			if field == nil {
				continue
			}
			n, err := parseUint(pair[at+1:])
			if err != nil {
				return model.DiskCounters{}, fmt.Errorf("line %q: %w", line, err)
			}
			*field += n
		}
	}
	return d, nil
}

func ioField(d *model.DiskCounters, key []byte) *uint64 {
	switch string(key) {
	case "rbytes":
		return &d.ReadBytes
	case "wbytes":
		return &d.WriteBytes
	case "rios":
		return &d.Reads
	case "wios":
		return &d.Writes
	}
	return nil
}
