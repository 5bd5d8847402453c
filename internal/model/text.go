package model

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

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
