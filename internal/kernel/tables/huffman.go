package main

import (
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// huffmanTables are two tables of the Huffman code of RFC 7541, each entry a code's length << 8 and
// its symbol, or 0. The first is looked up by the next eight bits, the second, for codes whose first
// seven bits are ones, by the last eight of the next fifteen. Longer codes are of symbols that no
// path of a URL has.
func huffmanTables() string {
	var short, long [256]int
	for symbol := range 256 {
		code, length := huffmanCode(byte(symbol))
		entry := length<<8 | symbol
		switch {
		case length <= 8:
			first := code << (8 - length)
			for i := range 1 << (8 - length) {
				short[first+i] = entry
			}
		case length <= 15:
			first := code << (15 - length) & 255
			for i := range 1 << (15 - length) {
				long[first+i] = entry
			}
		}
	}
	var b strings.Builder
	b.WriteString(head)
	for _, table := range []struct {
		name    string
		entries [256]int
	}{{"huffman_short", short}, {"huffman_long", long}} {
		fmt.Fprintf(&b, "\nstatic const u16 %s[256] = {", table.name)
		for i, entry := range table.entries {
			if i%12 == 0 {
				b.WriteString("\n\t")
			} else {
				b.WriteString(" ")
			}
			fmt.Fprintf(&b, "%#x,", entry)
		}
		b.WriteString("\n};\n")
	}
	return b.String()
}

// huffmanCode is the code of a symbol: eight of them in a row end with a byte.
func huffmanCode(symbol byte) (code, length int) {
	text := strings.Repeat(string([]byte{symbol}), 8)
	coded := hpack.AppendHuffmanString(nil, text)
	length = len(coded)
	for i := range length {
		code = code<<1 | int(coded[i/8]>>(7-i%8)&1)
	}
	return code, length
}
