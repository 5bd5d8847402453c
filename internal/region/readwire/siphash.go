package readwire

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 of a message of up to 255 bytes (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012).
func sipHash(key [16]byte, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	rounds := func(n int) {
		for range n {
			v0 += v1
			v1 = bits.RotateLeft64(v1, 13) ^ v0
			v0 = bits.RotateLeft64(v0, 32)
			v2 += v3
			v3 = bits.RotateLeft64(v3, 16) ^ v2
			v0 += v3
			v3 = bits.RotateLeft64(v3, 21) ^ v0
			v2 += v1
			v1 = bits.RotateLeft64(v1, 17) ^ v2
			v2 = bits.RotateLeft64(v2, 32)
		}
	}
	add := func(word uint64) {
		v3 ^= word
		rounds(2)
		v0 ^= word
	}
	rest := message
	for ; len(rest) >= 8; rest = rest[8:] {
		add(binary.LittleEndian.Uint64(rest))
	}
	var last [8]byte
	copy(last[:], rest)
	last[7] = byte(len(message))
	add(binary.LittleEndian.Uint64(last[:]))
	v2 ^= 0xff
	rounds(4)
	return v0 ^ v1 ^ v2 ^ v3
}
