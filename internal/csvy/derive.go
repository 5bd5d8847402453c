package csvy

import (
	"math"
	"slices"
)

// cell reports where a value comes from: values[index], or a sum of values.
type cell struct {
	terms []cellTerm
}

type cellTerm struct {
	index  int
	factor float64
}

// missing is a cell without a source.
var missing = cell{}

// value of the cell in a row: NaN where a part of it is missing.
func (c cell) value(values []float64) float64 {
	switch {
	case len(c.terms) == 0:
		return math.NaN()
	case len(c.terms) == 1 && c.terms[0].factor == 1:
		return values[c.terms[0].index]
	}
	total := 0.0
	for _, t := range c.terms {
		if t.factor > 0 && t.factor < 1 { // a division is exact where it comes out even
			total += values[t.index] / math.Round(1/t.factor)
			continue
		}
		total += t.factor * values[t.index]
	}
	return math.Floor(total)
}

// cellFor finds the column in the list, or one of the sums that gives it from the list.
func cellFor(name string, list []Column, sums []sum) (cell, bool) {
	index := func(name string) int {
		return slices.IndexFunc(list, func(c Column) bool { return c.Name == name })
	}
	if i := index(name); i >= 0 {
		return cell{[]cellTerm{{i, 1}}}, true
	}
	for _, s := range sums {
		if s.name != name {
			continue
		}
		var c cell
		for _, t := range s.terms {
			if i := index(t.name); i >= 0 {
				c.terms = append(c.terms, cellTerm{i, t.factor})
			}
		}
		if len(c.terms) == len(s.terms) {
			return c, true
		}
	}
	return missing, false
}
