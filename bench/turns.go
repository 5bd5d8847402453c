package main

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// turn is how long the programs are attached, or not, while a load goes on. What disturbs a
	// machine mostly lasts longer, and then it disturbs two turns that follow one another alike.
	turn = 100 * time.Millisecond
	// rest is left out at the beginning of each turn.
	rest = 10 * time.Millisecond
)

// bytesSent is what the loopback interface has carried: the work of a load whose requests are alike.
func bytesSent() (uint64, error) {
	text, err := os.ReadFile("/sys/class/net/lo/statistics/tx_bytes")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// toggles are what takes place before a turn without and one with.
type toggles struct{ off, on func() error }

// speedOfTurn is in bytes per second.
func speedOfTurn(turn time.Duration) (float64, error) {
	time.Sleep(rest)
	begun := time.Now()
	first, err := bytesSent()
	if err != nil {
		return 0, err
	}
	time.Sleep(turn - rest)
	last, err := bytesSent()
	return float64(last-first) / time.Since(begun).Seconds(), err
}

// lossInTurns attaches kernel programs to a load that goes on and takes them away again, in
// pairs of turns (without, with, with, without, ...). It returns each pair's loss in percent
// and the median speed without them in bytes per second.
func lossInTurns(ctx context.Context, programs toggles, run runner, pairs int, turn time.Duration) (losses []float64,
	plain float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := run(ctx); err != nil && ctx.Err() == nil {
				progress("the load ended: %v", err)
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	time.Sleep(time.Second) // the load warms up
	var plainSpeeds []float64
	for pair := range pairs {
		var speeds [2]float64 // without, with
		for i := range 2 {
			watched := (i + pair) % 2
			toggle := programs.off
			if watched == 1 {
				toggle = programs.on
			}
			err := toggle()
			if err == nil {
				speeds[watched], err = speedOfTurn(turn)
			}
			if err != nil {
				return nil, 0, err
			}
		}
		select {
		case <-ended:
			return nil, 0, errors.New("the load ended early")
		default:
		}
		if speeds[0] > 0 {
			losses, plainSpeeds = append(losses, 100*(1-speeds[1]/speeds[0])), append(plainSpeeds, speeds[0])
		}
	}
	return losses, median(plainSpeeds), nil
}

// interval is the 95 % confidence interval of the median, from the order of the values alone.
func interval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	reach := 1.96 * math.Sqrt(n) / 2
	at := func(place float64) float64 {
		return sorted[int(min(max(place, 0), n-1))]
	}
	return at(math.Floor(n/2 - reach)), at(math.Ceil(n/2 + reach))
}
