package store

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"outsight/internal/model"
)

// leLabel holds the upper bound of a counter of a classic histogram.
const (
	leLabel  = "le"
	infinite = "+Inf"
)

// bound is an upper bound of a classic histogram: one of a bucket of model.Scale, so that what is
// counted up to it is exact.
type bound struct {
	index int32
	le    string
}

func classicBounds(perOctave int) (bounds []bound) {
	width := int32(1<<model.Scale) / int32(perOctave)
	// The zero bucket is kept separate from what is above it.
	bounds = append(bounds, bound{model.MinBucket - 1, strconv.FormatFloat(model.ZeroThreshold.Seconds(), 'g', -1, 64)})
	for i := ceilTo(model.MinBucket, width); i <= model.MaxBucket; i += width {
		bounds = append(bounds, bound{i, strconv.FormatFloat(model.BucketUpperBound(i), 'g', -1, 64)})
	}
	return bounds
}

// ceilTo is the least multiple of width that is not below i.
func ceilTo(i, width int32) int32 { return -(floorDiv(-i, width) * width) }

func floorDiv(a, b int32) int32 { return int32(math.Floor(float64(a) / float64(b))) }

// cumulative calls f with how many observations are within each bound.
func cumulative(h *histogram.Histogram, bounds []bound, f func(bound, uint64)) {
	n := h.ZeroCount
	for it := h.NegativeBucketIterator(); it.Next(); {
		n += it.At().Count
	}
	it := h.PositiveBucketIterator()
	more := it.Next()
	for _, b := range bounds {
		for more && within(h, it.At(), b.index) {
			n += it.At().Count
			more = it.Next()
		}
		f(b, n)
	}
}

// within reports whether all of a bucket lies below the upper bound of bucket i of model.Scale. Histograms of other
// senders have other scales.
func within(h *histogram.Histogram, bucket histogram.Bucket[uint64], i int32) bool {
	if h.Schema == model.Scale {
		return bucket.Index <= i
	}
	// Both are powers of 2^(1/2^scale).
	return float64(bucket.Index)*math.Exp2(-float64(h.Schema)) <= float64(i)*math.Exp2(-model.Scale)
}

// part says which series of a classic histogram stand for a native one in a part of a query.
type part string

const (
	whole   part = "" // not within a function of histograms
	sums    part = "_sum"
	tallies part = "_count"
	buckets part = "_bucket"
)

// rewriter makes of a query one that another system understands, whatever form its histograms
// have there.
type rewriter struct {
	parser parser.Parser
	form   HistogramForm
	err    error
}

// rewrite is a query with functions of native histograms made into those of the form. Expr may
// be changed.
func (r *rewriter) rewrite(expr parser.Expr, p part) parser.Expr {
	switch n := expr.(type) {
	case *parser.VectorSelector:
		r.selector(n, p)
	case *parser.MatrixSelector:
		n.VectorSelector = r.rewrite(n.VectorSelector, p)
	case *parser.SubqueryExpr:
		n.Expr = r.rewrite(n.Expr, p)
		if n.Step == 0 {
			n.Step = defaultSubqueryStep
		}
	case *parser.ParenExpr:
		n.Expr = r.rewrite(n.Expr, p)
	case *parser.UnaryExpr:
		n.Expr = r.rewrite(n.Expr, p)
	case *parser.AggregateExpr:
		n.Expr = r.rewrite(n.Expr, p)
		if n.Param != nil {
			n.Param = r.rewrite(n.Param, whole)
		}
		if p == buckets && !n.Without && !slices.Contains(n.Grouping, leLabel) {
			n.Grouping = append(n.Grouping, leLabel)
		}
	case *parser.BinaryExpr:
		n.LHS, n.RHS = r.rewrite(n.LHS, p), r.rewrite(n.RHS, p)
		if m := n.VectorMatching; p == buckets && m != nil && m.On && !slices.Contains(m.MatchingLabels, leLabel) {
			m.MatchingLabels = append(m.MatchingLabels, leLabel)
		}
	case *parser.Call:
		return r.call(n, p)
	}
	return expr
}

func (r *rewriter) call(c *parser.Call, p part) parser.Expr {
	switch c.Func.Name {
	case "histogram_avg":
		// The same for all forms; older systems do not know the function.
		sum, count := r.copy(c.Args[0]), c.Args[0]
		if r.form == Native {
			return r.parse("(histogram_sum(%s) / histogram_count(%s))", r.rewrite(sum, whole), r.rewrite(count, whole))
		}
		return r.parse("((%s) / (%s))", r.rewrite(sum, sums), r.rewrite(count, tallies))
	case "histogram_count", "histogram_sum":
		if r.form != Native {
			of := tallies
			if c.Func.Name == "histogram_sum" {
				of = sums
			}
			// The sum drops the name, as the function does.
			return r.parse("(%s + 0)", r.rewrite(c.Args[0], of))
		}
	case "histogram_quantile":
		c.Args[0] = r.rewrite(c.Args[0], whole)
		if r.form == Native {
			break
		}
		native := r.copy(c.Args[1])
		c.Args[1] = r.rewrite(c.Args[1], buckets)
		if r.form == Classic {
			return c
		}
		return r.parse("(histogram_quantile(%s, %s) or %s)", c.Args[0], native, c)
	case "histogram_fraction", "histogram_stddev", "histogram_stdvar":
		if r.form != Native {
			r.err = fmt.Errorf("%s needs native histograms, and the remote store has %s ones", c.Func.Name, r.form)
		}
	}
	for i := range c.Args {
		c.Args[i] = r.rewrite(c.Args[i], p)
	}
	return c
}

func (r *rewriter) copy(expr parser.Expr) parser.Expr { return r.parse("%s", expr) }

func (r *rewriter) parse(format string, parts ...any) parser.Expr {
	for i := range parts {
		parts[i] = parts[i].(parser.Expr).String()
	}
	expr, err := r.parser.ParseExpr(fmt.Sprintf(format, parts...))
	if err != nil {
		r.err = fmt.Errorf("rewriting a histogram function: %w", err)
		return &parser.NumberLiteral{}
	}
	return expr
}

func (r *rewriter) selector(s *parser.VectorSelector, p part) {
	for i, m := range s.LabelMatchers {
		if m.Name != nameLabel {
			continue
		}
		value := m.Value
		switch {
		case p == whole:
			return
		case m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual:
			if strings.HasSuffix(value, string(p)) {
				return
			}
			value += string(p)
		default:
			value = "(?:" + value + ")" + string(p)
		}
		changed, err := labels.NewMatcher(m.Type, nameLabel, value)
		if err != nil {
			r.err = err
			return
		}
		s.LabelMatchers = slices.Clone(s.LabelMatchers)
		s.LabelMatchers[i] = changed
		if s.Name != "" {
			s.Name = value
		}
		return
	}
}
