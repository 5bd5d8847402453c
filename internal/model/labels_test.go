package model

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	f := func(in string, most int, want string) {
		t.Helper()
		if got := Printable(in, most); got != want {
			t.Errorf("Printable(%q, %d) = %q, want %q", in, most, got, want)
		}
	}
	f("nginx", 64, "nginx")
	f("größe 東", 64, "größe 東")
	f("\x1b]0;owned\x07", 64, "\ufffd]0;owned\ufffd")
	f("a\nb\x00c\u202ed\u2028", 64, "a\ufffdb\ufffdc\ufffdd\ufffd")
	f("\xff\xfe", 64, "\ufffd")
	f("\u009b31m", 64, "\ufffd31m") // the one-byte form of ESC [
	f("0123456789", 8, "01234…")
	f("ääääää", 8, "ää…")
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J", 10)
	f.Add(strings.Repeat("\xf0\x9f", 40), 64)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = 8 + int(uint(most)%256)
		got := Printable(text, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Errorf("%d bytes %q of %q, want at most %d and valid", len(got), got, text, most)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) && r != utf8.RuneError {
				t.Errorf("%q has %q", got, r)
			}
		}
	})
}
