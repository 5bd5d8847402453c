package graph

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a name safe to print: control characters (terminal escapes, line ends) and
// characters that reorder the text around them become '�'.
func Clean(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(name, "�"))
}

// cut shortens s to width characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width <= 1 {
		return "…"
	}
	return string([]rune(s)[:width-1]) + "…"
}

// Duration writes seconds for people, with three digits: "3.12 ms". It is "–" for nil, and
// names the bound where the value is past an end of the histogram's range.
func Duration(s *Seconds) string {
	if s == nil {
		return "–"
	}
	switch v := float64(*s); {
	case math.IsInf(v, 1):
		return "> 68.7 s"
	case v == 0:
		return "< 1.02 µs"
	case v < 0.9995e-3:
		return digits(v*1e6) + " µs"
	case v < 0.9995:
		return digits(v*1e3) + " ms"
	default:
		return digits(v) + " s"
	}
}

// PerSecond writes a rate for people: "412/s". It is "–" for nil.
func PerSecond(v *float64) string {
	if v == nil {
		return "–"
	}
	return scaled(*v) + "/s"
}

// BytesPerSecond writes a rate of bytes: "1.24 MB/s", in powers of 1000. It is "–" for nil.
func BytesPerSecond(v *float64) string {
	if v == nil {
		return "–"
	}
	s := scaled(*v)
	if n := len(s) - 1; s[n] >= 'G' && s[n] <= 'k' {
		return s[:n] + " " + s[n:] + "B/s"
	}
	return s + " B/s"
}

// Bytes writes a level of memory: "12.5 MiB", in powers of 1024. It is "–" for nil.
func Bytes(v *float64) string {
	if v == nil {
		return "–"
	}
	b, unit := *v, 0
	for b >= 1000 && unit < 4 {
		b, unit = b/1024, unit+1
	}
	return digits(b) + " " + [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
}

func scaled(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 0.9995*unit.size {
			return digits(v/unit.size) + unit.name
		}
	}
	return digits(v)
}

// digits writes v >= 0 with three significant digits and no more than the value has.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
