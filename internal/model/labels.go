package model

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLabelBytes is the greatest length of a label's value; a longer one is cut and ends with
// "…" and a hash of the whole.
const MaxLabelBytes = 1024

// NewLabel is a label with a value that any reader accepts: UTF-8, of at most MaxLabelBytes. A longer value is cut.
func NewLabel(name, value string) Label {
	if !utf8.ValidString(value) { // mostly it is, which this finds out eight bytes at a time
		value = strings.ToValidUTF8(value, string(utf8.RuneError))
	}
	if len(value) > MaxLabelBytes {
		value = cut(value)
	}
	return Label{Name: name, Value: value}
}

// cut shortens value to at most MaxLabelBytes. The hash of the whole value at the end keeps two
// long values apart that begin alike.
func cut(value string) string {
	hash := fnv.New64a()
	hash.Write([]byte(value))
	mark := fmt.Sprintf("…%016x", hash.Sum64())
	end := MaxLabelBytes - len(mark)
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end] + mark
}

// SortedLabels drops labels without a value, which mean the same as no label, and sorts the others. It changes all.
func SortedLabels(all ...Label) []Label {
	all = slices.DeleteFunc(all, func(l Label) bool { return l.Value == "" })
	slices.SortFunc(all, byName)
	return all
}

func byName(a, b Label) int { return strings.Compare(a.Name, b.Name) }

// with are the labels of both, in order of their names. It may be extra itself.
func with(base, extra []Label) []Label {
	if len(extra) == 0 {
		return base
	}
	if len(base) == 0 && !slices.ContainsFunc(extra, func(l Label) bool { return l.Value == "" }) &&
		slices.IsSortedFunc(extra, byName) {
		return extra
	}
	return SortedLabels(slices.Concat(base, extra)...)
}

// Printable makes a text that a container has chosen fit to be shown and to be a label: valid UTF-8, without control
// characters and others that a terminal or a page would act on, of at most so many bytes. What is cut ends with "…".
func Printable(text string, most int) string {
	if len(text) <= most && isPlain(text) {
		return text
	}
	// A rune that is replaced may take three bytes in place of one.
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), most+utf8.UTFMax)], string(utf8.RuneError)))
	if len(text) <= most {
		return text
	}
	end := max(most-len("…"), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// isPlain finds quickly that most texts need no change.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
