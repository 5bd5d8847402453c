package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"outsight/internal/csvy"
)

var update = flag.Bool("update", false, "write the golden file")

// example has a bit of everything.
func example() *Report {
	w := shop(5)
	hog(&w, 3003, 3243)
	w.stall("catalogue", 8000, 8080)
	w.actor("<b>batch</b>").cpu = between(5000, 6500, 1.6, 0)
	w.lost = func(at float64) bool { return at > 9000 && at < 9012 }
	recordings := w.record()
	recordings[1].Problems = []csvy.Problem{{Line: 12, Text: "the row has no time", Count: 3}}
	recordings[2].Head.Host.Kernel = "6.18.1"
	return Analyse(recordings, Options{})
}

func TestText(t *testing.T) {
	const golden = "testdata/report.txt"
	got := example().Text(20, time.UTC)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := example().Text(1, time.UTC); !strings.Contains(got,
		"2 short saturations; these 1 made others wait the most") || strings.Contains(got, "stood still") {
		t.Errorf("with one saturation: got\n%s", got)
	}
	if got := Analyse(nil, Options{}).Text(20, time.UTC); !strings.Contains(got, "No short saturation was found.") {
		t.Errorf("of nothing: got\n%s", got)
	}
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := example().HTML(&b, 20, time.UTC); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "http:", "https:", "url(", "src=", "<b>batch", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	for _, good := range []string{"stood still for", `href="#s1"`, `id="s1"`, `id="l1"`, "&lt;b&gt;batch",
		"the row has no time"} {
		if !strings.Contains(page, good) {
			t.Errorf("the page has no %q in it", good)
		}
	}
	drawings := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(drawings) < 8 {
		t.Errorf("the page has %d drawings, want 8 or more", len(drawings))
	}
	for _, drawing := range drawings {
		d := xml.NewDecoder(strings.NewReader(drawing))
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("a drawing is no XML: %v\n%s", err, drawing)
			}
		}
	}
	b.Reset()
	if err := Analyse(nil, Options{}).HTML(&b, 20, time.UTC); err != nil ||
		!strings.Contains(b.String(), "No short saturation was found.") {
		t.Errorf("of nothing: got %v\n%s", err, b.String())
	}
}

func TestJSON(t *testing.T) {
	for _, r := range []*Report{example(), Analyse(nil, Options{})} {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"saturations":null`) || strings.Contains(string(b), `"effects":null`) {
			t.Errorf("a list that is empty is null in\n%s", b)
		}
	}
}
