package frame

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestLiteralsAreRead: what is coded as literals is the same again, of any length: where sizes are written in another way,
// where there are several blocks, and where bytes cannot be coded.
func TestLiteralsAreRead(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	texts := map[string]func() byte{
		"few":     func() byte { return byte(random.IntN(4)) },
		"skewed":  func() byte { return byte(random.ExpFloat64() * 8) },
		"any":     func() byte { return byte(random.Uint32()) },
		"one":     func() byte { return 7 },
		"numbers": func() byte { return binary.AppendUvarint(nil, random.Uint64N(1<<(random.IntN(20)+1)))[0] },
	}
	plain, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, text := range texts {
		for _, size := range []int{1, 2, 7, 31, 255, 256, 511, 512, 1023, 1024, 4095, 1<<14 - 1, 1 << 14, 1<<16 + 255, 1<<16 + 256,
			1<<17 - 1, 1 << 17, 1<<17 + 1, 1<<17 + 700, 300_000} {
			raw := make([]byte, size)
			for i := range raw {
				raw[i] = text()
			}
			all := compressLiterals([]byte("before"), raw)
			coded, ok := bytes.CutPrefix(all, []byte("before"))
			if !ok {
				t.Fatalf("%d bytes (%s) are not appended", size, name)
			}
			got, err := decompress(nil, block{coded, size})
			if err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%d bytes (%s) are not the same again: %v", size, name, err)
			}
			if got, err := plain.DecodeAll(coded, nil); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%d bytes (%s) are not the same again to another reader: %v", size, name, err)
			}
		}
	}
}

// TestLiteralsOfHistogramsAreSmall: coded as literals, the histograms of a busy host are no larger than what refers back.
func TestLiteralsOfHistogramsAreSmall(t *testing.T) {
	for _, busy := range []float64{1, 0.3} {
		key, f := sampleFrames(50, 200, busy)
		for _, frame := range []struct{ now, key *Frame }{{key, nil}, {f, key}} {
			old := &noHistograms
			w := writer{identical: true, rows: len(frame.now.Tables[Edges].IDs)}
			for i := range frame.now.Tables[Edges].Histograms {
				if frame.key != nil {
					old = &frame.key.Tables[Edges].Histograms[i]
				}
				w.same, w.part = []segment{{0, 0, w.rows}}, w.part[:0]
				if !w.writeHistograms(&frame.now.Tables[Edges].Histograms[i], old) || len(w.part) < apartFrom {
					continue
				}
				literals, back := len(compressLiterals(nil, w.part)), len(compress(nil, w.part))
				t.Logf("%s: %d bytes, %d as literals, %d that refer back", Schema[Edges].Histograms[i].Name, len(w.part), literals, back)
				if literals > back*21/20 {
					t.Errorf("%s has %d bytes as literals, %d that refer back", Schema[Edges].Histograms[i].Name, literals, back)
				}
			}
		}
	}
}
