package store

import (
	"math"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"
)

// Bounds of an expression.
const (
	// maxDepth bounds the nesting of an expression, and maxNodes the number of its nodes: evaluation and printing are
	// recursive.
	maxDepth, maxNodes = 1000, 8192
	// maxRegexSize bounds the instructions of all regular expressions of a query, above what a query can spell out. A
	// few characters, as in "x{1000}", compile to thousands, and a query can have thousands of them.
	maxRegexSize = 2 * MaxQueryBytes
	// maxSubquerySteps bounds the steps of a subquery.
	maxSubquerySteps = 1 << 20
	// maxBuiltLabels bounds the bytes of labels that functions add to one series.
	maxBuiltLabels = 1 << 20
)

// Bytes that the engine takes. They are measured roughly, and rounded up.
const (
	// seriesCost is for a series in the hands of the engine, without labels and samples.
	seriesCost = 256
	// pointCost is for a number at a step. The engine preallocates the points of all steps, up to maxPreallocated of
	// them, for each series.
	pointCost, maxPreallocated = 16, 5000
	// stepCost is for a step of a subquery.
	stepCost = 16
	// numberText is the longest text of a number that count_values makes.
	numberText = 330
)

// cost is the memory that an expression may take, as far as it is known before evaluation: more depends on the series
// that its selectors find.
type cost struct {
	// fixed is what it takes whatever is stored, and times how many times the longest value of a label that it reads.
	fixed, times int64
	// included means that labels are copied from one side of an operator to the other, so that the longest value
	// matters.
	included bool
	// flows are of the selectors, in the order in which the engine asks for them; literals are of series that are in
	// the query itself.
	flows, literals []*flow
	of              map[*parser.VectorSelector]*flow
}

// parse reads an expression that is not too large to be read.
func parse(p parser.Parser, query string) (parser.Expr, error) {
	if err := checkText(query); err != nil {
		return nil, err
	}
	expr, err := p.ParseExpr(query)
	if err != nil {
		return nil, &queryError{ErrBadQuery, shortened(err)}
	}
	nodes := 0
	if err := checkDepth(expr, 1, &nodes); err != nil {
		return nil, err
	}
	return expr, nil
}

// checkText refuses what would take much memory to be read at all.
func checkText(query string) error {
	if len(query) > MaxQueryBytes {
		return badQuery("query of %d bytes: at most %d", len(query), MaxQueryBytes)
	}
	if !strings.ContainsAny(query, `"'`+"`") {
		return nil
	}
	size := 0
	var item parser.Item
	for l := parser.Lex(query); ; {
		l.NextItem(&item)
		switch item.Typ {
		case parser.EOF, parser.ERROR:
			return nil
		case parser.STRING:
			text, err := strutil.Unquote(item.Val)
			if err != nil {
				continue // the parser will tell
			}
			if size += regexSize(text); size > maxRegexSize {
				return badQuery("the regular expressions of the query have more than %d instructions: use fewer or smaller repetitions", maxRegexSize)
			}
		}
	}
}

// regexSize is near the number of instructions of a regular expression, and 0 for what is none.
func regexSize(text string) int {
	if !strings.ContainsAny(text, `{*+?[\(`) {
		return len(text)
	}
	re, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return 0
	}
	return instructions(re)
}

func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), math.MaxInt32)
	}
	if re.Op == syntax.OpRepeat {
		// {3,} is written out as three and a loop, {3,5} as five.
		n = min(n*max(re.Min+1, re.Max, 1), math.MaxInt32)
	}
	return n
}

func checkDepth(node parser.Node, depth int, nodes *int) error {
	if *nodes++; depth > maxDepth || *nodes > maxNodes {
		return badQuery("the query is nested more than %d deep or has more than %d parts: ask for less at a time",
			maxDepth, maxNodes)
	}
	for child := range parser.ChildrenIter(node) {
		if err := checkDepth(child, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// span are the steps at which a part of an expression is evaluated.
type span struct {
	length, step time.Duration
}

func (s span) steps() int64 {
	if s.step <= 0 {
		return 1
	}
	return int64(s.length/s.step) + 1
}

// preallocated is what the engine allocates for the points of a series.
func (s span) preallocated() int64 {
	if n := s.steps(); n > 1 {
		return min(n, maxPreallocated) * pointCost
	}
	return 0
}

// costOf estimates the memory of an evaluation.
func costOf(expr parser.Expr, length, step time.Duration) (*cost, error) {
	c := &cost{of: map[*parser.VectorSelector]*flow{}}
	// The engine asks in this order.
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			f := &flow{}
			c.of[v] = f
			c.flows = append(c.flows, f)
		}
		return nil
	})
	if _, _, err := c.walk(expr, span{length, step}); err != nil {
		return nil, err
	}
	for _, f := range c.flows {
		f.prepare()
	}
	for _, f := range c.literals {
		f.prepare()
		bytes, times, err := f.charge(f.literal, 0)
		if err != nil {
			return nil, err
		}
		c.fixed, c.times = min(c.fixed+bytes, plenty), min(c.times+times, plenty)
	}
	return c, nil
}

// growth bounds the length of a label's value: by factor times the longest that is stored in a series that the query
// reads, and more.
type growth struct{ factor, more int64 }

// plenty is more than anything may take.
const plenty = math.MaxInt64 >> 24

func (g growth) times(n, more int64) growth {
	return growth{multiply(g.factor, n), min(multiply(g.more, n)+more, plenty)}
}

func (g growth) or(other growth) growth {
	return growth{max(g.factor, other.factor), max(g.more, other.more)}
}

func multiply(a, b int64) int64 {
	if a > 0 && b > plenty/a {
		return plenty
	}
	return a * b
}

// walk finds which series a part of the expression returns, and how long the values of their labels may be.
func (c *cost) walk(expr parser.Expr, at span) (flows []*flow, values growth, err error) {
	switch e := expr.(type) {
	case *parser.VectorSelector:
		return []*flow{c.of[e]}, growth{factor: 1}, nil
	case *parser.MatrixSelector:
		return c.walk(e.VectorSelector, at)
	case *parser.NumberLiteral:
		// As many of them can be held as the expression has.
		c.fixed += seriesCost + at.preallocated()
		return nil, growth{}, nil
	case *parser.StringLiteral:
		return nil, growth{}, nil
	case *parser.ParenExpr:
		return c.walk(e.Expr, at)
	case *parser.StepInvariantExpr:
		return c.walk(e.Expr, at)
	case *parser.UnaryExpr:
		return c.walk(e.Expr, at)
	case *parser.SubqueryExpr:
		return c.subquery(e, at)
	case *parser.AggregateExpr:
		return c.aggregate(e, at)
	case *parser.Call:
		return c.call(e, at)
	case *parser.BinaryExpr:
		return c.binary(e, at)
	}
	return nil, growth{}, badQuery("BUG: a %T is not known here", expr)
}

func (c *cost) subquery(e *parser.SubqueryExpr, at span) ([]*flow, growth, error) {
	step := e.Step
	if step <= 0 {
		step = defaultSubqueryStep
	}
	if e.Range > math.MaxInt64-at.length || (e.Range+at.length)/step >= maxSubquerySteps {
		return nil, growth{}, badQuery("subquery of %v every %v, over a query of %v: more than %d steps: use a longer step or a shorter range",
			e.Range, step, at.length, maxSubquerySteps)
	}
	inner := span{e.Range + at.length, step}
	c.fixed += inner.steps() * stepCost
	return c.walk(e.Expr, inner)
}

func (c *cost) aggregate(e *parser.AggregateExpr, at span) ([]*flow, growth, error) {
	if e.Param != nil {
		if _, _, err := c.walk(e.Param, at); err != nil {
			return nil, growth{}, err
		}
	}
	flows, values, err := c.walk(e.Expr, at)
	if err != nil {
		return nil, growth{}, err
	}
	room := &labelOp{kind: opPreallocate, preallocated: at.preallocated()}
	switch e.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		pass(flows, room)
		return flows, values, nil
	case parser.COUNT_VALUES:
		name := textOf(e.Param)
		pass(flows, &labelOp{kind: opBuild, name: name, more: growth{more: numberText}, varies: true}, room)
		if !e.Without {
			pass(flows, &labelOp{kind: opGroup, names: append(slices.Clone(e.Grouping), name)})
		}
		return flows, values.or(growth{more: numberText}), nil
	}
	pass(flows, &labelOp{kind: opGroup, names: slices.Clone(e.Grouping), without: e.Without}, room)
	return flows, values, nil
}

func (c *cost) call(e *parser.Call, at span) (flows []*flow, values growth, err error) {
	matrix := false
	for _, arg := range e.Args {
		some, g, err := c.walk(arg, at)
		if err != nil {
			return nil, growth{}, err
		}
		flows, values = append(flows, some...), values.or(g)
		matrix = matrix || arg.Type() == parser.ValueTypeMatrix
	}
	switch e.Func.Name {
	case "label_replace":
		replacement := textOf(e.Args[2])
		n, more := int64(strings.Count(replacement, "$")), int64(len(replacement))
		pass(flows, &labelOp{kind: opBuild, name: textOf(e.Args[1]), sources: []string{textOf(e.Args[3])}, times: n,
			more: growth{more: more}, keeps: true})
		return flows, values.or(values.times(n, more)), nil
	case "label_join":
		op := &labelOp{kind: opBuild, name: textOf(e.Args[1]), times: 1}
		for _, arg := range e.Args[3:] {
			op.sources = append(op.sources, textOf(arg))
		}
		n := int64(len(op.sources))
		op.more.more = n * int64(len(textOf(e.Args[2])))
		pass(flows, op)
		return flows, values.or(values.times(n, op.more.more)), nil
	case "absent", "absent_over_time":
		f := c.literal(labelsOfAbsent(e.Args[0]), at)
		return []*flow{f}, growth{more: MaxQueryBytes}, nil
	case "vector":
		return []*flow{c.literal(labels.EmptyLabels(), at)}, growth{}, nil
	}
	switch {
	case e.Type() != parser.ValueTypeVector:
		c.fixed += seriesCost + at.preallocated()
		return nil, growth{}, nil
	case len(flows) == 0: // as minute()
		return []*flow{c.literal(labels.EmptyLabels(), at)}, growth{}, nil
	case !matrix: // what the engine computes of ranges shares the room
		pass(flows, &labelOp{kind: opPreallocate, preallocated: at.preallocated()})
	}
	return flows, values, nil
}

// literal is the flow of a series that the query itself makes.
func (c *cost) literal(l labels.Labels, at span) *flow {
	f := &flow{literal: l}
	c.literals = append(c.literals, f)
	return f
}

func labelsOfAbsent(arg parser.Expr) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	parser.Inspect(arg, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			for _, m := range v.LabelMatchers {
				b.Set(m.Name, m.Value)
			}
		}
		return nil
	})
	return b.Labels()
}

// textOf is the text of an argument that is one.
func textOf(arg parser.Expr) string {
	for {
		switch a := arg.(type) {
		case *parser.ParenExpr:
			arg = a.Expr
		case *parser.StepInvariantExpr:
			arg = a.Expr
		case *parser.StringLiteral:
			return a.Val
		default:
			return ""
		}
	}
}

func (c *cost) binary(e *parser.BinaryExpr, at span) ([]*flow, growth, error) {
	left, leftValues, err := c.walk(e.LHS, at)
	if err != nil {
		return nil, growth{}, err
	}
	right, rightValues, err := c.walk(e.RHS, at)
	if err != nil {
		return nil, growth{}, err
	}
	values := leftValues.or(rightValues)
	if e.Type() == parser.ValueTypeScalar {
		c.fixed += seriesCost + at.preallocated()
		return nil, growth{}, nil
	}
	flows := left
	switch m := e.VectorMatching; {
	case m == nil: // one side is a number
		flows = append(left, right...)
	case e.Op == parser.LOR:
		flows = append(left, right...)
	case m.Card == parser.CardOneToMany:
		flows = right
		pass(flows, c.include(m, leftValues)...)
	case m.Card == parser.CardManyToOne:
		pass(flows, c.include(m, rightValues)...)
	}
	pass(flows, &labelOp{kind: opPreallocate, preallocated: at.preallocated()})
	return flows, values, nil
}

// include notes the labels copied by group_left or group_right, and the length of their values.
func (c *cost) include(m *parser.VectorMatching, values growth) (ops []*labelOp) {
	c.included = c.included || len(m.Include) > 0
	for _, name := range m.Include {
		op := &labelOp{kind: opBuild, name: name, more: values, varies: !m.On}
		if m.On {
			op.sources = m.MatchingLabels
		}
		ops = append(ops, op)
	}
	return ops
}
