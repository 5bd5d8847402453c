package csvy

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// field is a key of a YAML mapping with its value: nil, a string, an int64, a uint64, a list of
// strings, a map of strings, or fields.
type field struct {
	key   string
	value any
}

type fields []field

// appendYAML writes a mapping as rAdvisor's library does: two spaces for each depth, lists
// indented, "~" for what is missing, and texts in double quotes where they need them. No line of
// it can be taken for the end of the head.
func appendYAML(b []byte, list fields, depth int) []byte {
	indent := strings.Repeat("  ", depth)
	for _, f := range list {
		b = append(b, indent...)
		b = append(appendText(b, f.key), ':')
		switch v := f.value.(type) {
		case fields:
			b = append(b, '\n')
			b = appendYAML(b, v, depth+1)
			continue
		case []string:
			if len(v) == 0 {
				b = append(b, " []"...)
			}
			for _, item := range v {
				b = append(append(b, '\n'), indent...)
				b = appendText(append(b, "  - "...), item)
			}
		case map[string]string:
			if len(v) == 0 {
				b = append(b, " {}"...)
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				b = append(append(append(b, '\n'), indent...), "  "...)
				b = append(appendText(b, key), ": "...)
				b = appendText(b, v[key])
			}
		case string:
			b = appendText(append(b, ' '), v)
		case int64:
			b = strconv.AppendInt(append(b, ' '), v, 10)
		case uint64:
			b = strconv.AppendUint(append(b, ' '), v, 10)
		default:
			b = append(b, " ~"...)
		}
		b = append(b, '\n')
	}
	return b
}

// plainText needs no quotes if it is no number and no date: it has nothing that means something.
var (
	plainText = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)
	dateText  = regexp.MustCompile(`^[0-9]{4}-[0-9]`)
)

// notText are words that mean something else without quotes.
var notText = []string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}

func appendText(b []byte, s string) []byte {
	if plainText.MatchString(s) && !dateText.MatchString(s) && !isNumber(s) &&
		!slices.Contains(notText, strings.ToLower(s)) {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// isNumber is true for all that YAML, 1.1 or 1.2, may take for a number.
func isNumber(s string) bool {
	s = strings.ReplaceAll(s, "_", "")
	_, notInt := strconv.ParseInt(s, 0, 64)
	_, notFloat := strconv.ParseFloat(s, 64)
	return !errors.Is(notInt, strconv.ErrSyntax) || !errors.Is(notFloat, strconv.ErrSyntax)
}

// optional is nil for what is empty.
func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}
