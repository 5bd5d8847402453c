//go:build interop

package stamp

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// runTWAMP starts the program of the crate twamp, which scripts/install stamp builds: TWAMP-Light by a configuration. It
// prints what it found when it ends.
func runTWAMP(t *testing.T, ctx context.Context, configuration map[string]any) (c *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	path := os.Getenv("TWAMP")
	if path == "" {
		var err error
		if path, err = exec.LookPath("twamp_example"); err != nil {
			t.Fatal("the crate twamp is not installed; make test-stamp installs it")
		}
	}
	dir := t.TempDir()
	text, err := json.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	const log = "appenders:\n  out: {kind: console, encoder: {pattern: \"{m}{n}\"}}\nroot: {level: info, appenders: [out]}\n"
	for name, content := range map[string]string{"configuration.json": string(text), "twamp/log_config.yml": log} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, out = exec.CommandContext(ctx, path, "configuration.json"), &bytes.Buffer{}
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, out
}

// Its reflector answers our sender. Its replies have no bytes after the TTL but padding, as STAMP's have.
func TestTWAMPLightReflects(t *testing.T) {
	free := listen(t)
	at := free.LocalAddr().(*net.UDPAddr).AddrPort()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c, out := runTWAMP(t, ctx, map[string]any{"mode": "LIGHT_REFLECTOR", "source_ip_address": at.String(), "ref_wait": 900})
	t.Cleanup(func() { cancel(); _ = c.Wait(); t.Log(out.String()) })
	awaitTWAMP(t, at)
	samples, stats := send(t, at, SenderOptions{Interval: 5 * time.Millisecond, Count: 20, TWAMP: true})
	if stats != (SenderStats{}) || len(samples) != 20 {
		t.Fatalf("%d samples, %+v", len(samples), stats)
	}
	for i, s := range samples {
		if s.Lost || s.ReflectorNumber != samples[0].ReflectorNumber+uint32(i) {
			t.Fatalf("sample %d: %+v", i, s)
		}
		// One clock, with which its times and ours are.
		if s.ReflectorReceived.Before(s.Sent.Add(-time.Millisecond)) || s.ReflectorSent.Before(s.ReflectorReceived.Add(-time.Millisecond)) ||
			s.Received.Before(s.ReflectorSent.Add(-time.Millisecond)) {
			t.Errorf("sample %d: sent %v, received there %v, sent there %v, received %v", i, s.Sent, s.ReflectorReceived,
				s.ReflectorSent, s.Received)
		}
	}
}

// awaitTWAMP waits until a reflector of TWAMP-Light answers.
func awaitTWAMP(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for range 100 {
		samples, _ := send(t, at, SenderOptions{Count: 1, Timeout: 100 * time.Millisecond, TWAMP: true})
		if len(samples) == 1 && !samples[0].Lost {
			return
		}
	}
	t.Fatal("the reflector does not answer")
}

// Our reflector answers its sender, which finds no packet lost.
func TestTWAMPLightSends(t *testing.T) {
	r, at := runReflector(t, ReflectorOptions{Peer: anybody(nil)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, out := runTWAMP(t, ctx, map[string]any{"mode": "LIGHT_SENDER", "source_ip_address": "127.0.0.1:0",
		"hosts": []any{map[string]any{"ip": "127.0.0.1", "port": at.Port()}}, "collection_period": 2, "packet_interval": 100,
		"padding": 41, "ref_wait": 1, "last_message_timeout": 1})
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, told, _ := bytes.Cut(out.Bytes(), []byte("Result "))
	var result struct {
		Error    string `json:"error"`
		Sessions []struct {
			Statistics struct {
				Packets    int     `json:"total_packets"`
				Lost       int     `json:"total_loss"`
				LostThere  int     `json:"forward_loss"`
				LostBack   int     `json:"backward_loss"`
				LeastRTT   float64 `json:"min_rtt"`
				LeastThere float64 `json:"min_forward_owd"`
			} `json:"network_statistics"`
		} `json:"session_results"`
	}
	if err := json.NewDecoder(bytes.NewReader(told)).Decode(&result); err != nil || len(result.Sessions) != 1 {
		t.Fatalf("its result: %v\n%s", err, out)
	}
	s := result.Sessions[0].Statistics
	if result.Error != "" || s.Packets < 10 || s.Lost+s.LostThere+s.LostBack != 0 || s.LeastRTT <= 0 {
		t.Errorf("it found %+v %s", s, result.Error)
	}
	if got := r.Stats(); got != (ReflectorStats{Answered: uint64(s.Packets)}) {
		t.Errorf("the reflector counted %+v, want %d answers", got, s.Packets)
	}
}
