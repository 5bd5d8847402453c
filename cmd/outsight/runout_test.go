package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"outsight/internal/predict"
)

// TestRunOutText: what is used up is told with its bounds, and what is not in sight is said so.
func TestRunOutText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	to := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	from := to.AddDate(0, 0, -1)
	course := func(perDay float64) *predict.Course {
		var all []predict.Used
		for i := range 97 {
			all = append(all, predict.Used{At: from.Add(time.Duration(i) * 15 * time.Minute),
				Amount: 500e6 + perDay*float64(i)/96 + 1e6*r.NormFloat64()})
		}
		c, err := predict.FitCourse(all)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	leak, falls := course(300e6), course(-300e6)
	a := runOutAnswer{From: from, To: to, StepSeconds: 900, HorizonSeconds: 172800, Resources: []predict.Bounded{
		{Kind: "memory", Node: "1", Name: "cart", Host: "a", Used: 800e6, Capacity: 1e9, Course: leak,
			RunsOut: leak.RunOut(1e9, 48*time.Hour)},
		{Kind: "memory", Name: "a", Host: "a", Used: 200e6, Capacity: 4e9, Course: falls},
		{Kind: "cpu", Node: "2", Name: "web", Host: "a", Used: 0.5, Capacity: 2, Unknown: predict.ErrShort.Error()},
	}}
	var text strings.Builder
	if err := a.write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memory of cart", "in 1", " h ", "grows", "memory of the host", "not in sight", "falls", "-",
		"cpu of web", "0.50 cores", "2.00 cores", predict.ErrShort.Error(), "Learnt from 1 d 0 h in stretches of 15m0s; looked 2 d 0 h ahead."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	t.Log("\n" + text.String())
}

func TestAhead(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s",
		25 * time.Hour: "1 d 1 h", 90 * time.Minute: "1 h 30 min"} {
		if got := ahead(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
