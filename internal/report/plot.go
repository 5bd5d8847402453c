package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// plot is a drawing of steps over time, as SVG without any colour: the page's style has those.
type plot struct {
	Title  string
	Legend []legend
	SVG    template.HTML
}

type legend struct {
	Class, Name string
}

// stepLine is a value for each step of time: v[i] from t[i] to t[i+1]. A gauge's value holds from
// its sample on.
type stepLine struct {
	name string
	t    []int64
	v    []float64
}

// band marks a time; the link leads to where it is explained.
type band struct {
	from, to           int64
	class, title, link string
}

// Sizes of a plot, in units of its own.
const (
	plotWidth  = 960
	plotLeft   = 44
	plotRight  = 8
	plotTop    = 8
	plotBottom = 20
)

// canvas draws one plot.
type canvas struct {
	b        strings.Builder
	from, to int64
	most     float64
	height   float64
}

func (c *canvas) x(t int64) float64 {
	share := float64(t-c.from) / float64(max(c.to-c.from, 1))
	return plotLeft + min(max(share, 0), 1)*(plotWidth-plotLeft-plotRight)
}

func (c *canvas) y(v float64) float64 {
	return c.height - plotBottom - min(max(v/c.most, 0), 1)*(c.height-plotTop-plotBottom)
}

// drawPlot draws lines and bands between two times. limit is a line across; 0 is none. label writes
// a time on the axis.
func drawPlot(title string, from, to int64, height float64, lines []stepLine, bands []band, limit float64,
	step time.Duration, label func(int64) string, origin int64) plot {
	if math.IsNaN(limit) || math.IsInf(limit, 0) {
		limit = 0
	}
	c := &canvas{from: from, to: to, height: height, most: limit}
	for _, l := range lines {
		for _, v := range l.v {
			if !math.IsNaN(v) {
				c.most = max(c.most, v)
			}
		}
	}
	tick := roundStep(max(c.most, 1e-3) / 3)
	c.most = max(tick*math.Ceil(c.most/tick-1e-9), tick)
	fmt.Fprintf(&c.b, `<svg viewBox="0 0 %d %g" role="img" aria-label="%s">`, plotWidth, height,
		template.HTMLEscapeString(title))
	for _, b := range bands {
		c.band(b)
	}
	for v := 0.0; v <= c.most+tick/2; v += tick {
		fmt.Fprintf(&c.b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1[3]f"/>`, plotLeft, plotWidth-plotRight,
			c.y(v))
		fmt.Fprintf(&c.b, `<text class="axis end" x="%d" y="%.1f">%s</text>`, plotLeft-6, c.y(v)+3.5, axisNumber(v))
	}
	for t := origin + ceilTo(from-origin, int64(step)); t <= to; t += int64(step) {
		anchor := "middle"
		if c.x(t) > plotWidth-40 {
			anchor = "end"
		}
		fmt.Fprintf(&c.b, `<text class="axis %s" x="%.1f" y="%.1f">%s</text>`, anchor, c.x(t), height-5,
			template.HTMLEscapeString(label(t)))
	}
	if limit > 0 {
		fmt.Fprintf(&c.b, `<line class="limit" x1="%d" x2="%d" y1="%.1f" y2="%.1[3]f"/>`, plotLeft, plotWidth-plotRight,
			c.y(limit))
	}
	p := plot{Title: title}
	for i, l := range lines {
		class := fmt.Sprintf("line-%d", i%6)
		c.line(l, class)
		if l.name != "" {
			p.Legend = append(p.Legend, legend{class, l.name})
		}
	}
	c.b.WriteString("</svg>")
	p.SVG = template.HTML(c.b.String()) // numbers, and texts that are escaped above
	return p
}

func ceilTo(v, step int64) int64 {
	n := v / step * step
	if n < v {
		n += step
	}
	return n
}

// roundStep is 1, 2 or 5 times a power of ten, and no less than v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= v*0.999 {
			return n * power
		}
	}
	return 10 * power
}

func axisNumber(v float64) string {
	if math.Abs(v) < 1e-9 {
		return "0"
	}
	return fmt.Sprintf("%.3g", v)
}

func (c *canvas) band(b band) {
	if b.to < c.from || b.from > c.to {
		return
	}
	from, to := c.x(b.from), c.x(b.to)
	rect := fmt.Sprintf(`<rect class="band %s" x="%.1f" y="%d" width="%.1f" height="%.1f"><title>%s</title></rect>`,
		b.class,
		from, plotTop, max(to-from, 2), c.height-plotTop-plotBottom, template.HTMLEscapeString(b.title))
	if b.link != "" {
		rect = fmt.Sprintf(`<a href="#%s">%s</a>`, template.HTMLEscapeString(b.link), rect)
	}
	c.b.WriteString(rect)
}

func (c *canvas) line(l stepLine, class string) {
	var path strings.Builder
	pen := false
	for i, v := range l.v {
		begin, end := l.t[i], l.t[i+1]
		if end < c.from || begin > c.to {
			continue
		}
		if math.IsNaN(v) {
			pen = false
			continue
		}
		if pen {
			fmt.Fprintf(&path, "V%.1fH%.1f", c.y(v), c.x(end))
		} else {
			fmt.Fprintf(&path, "M%.1f %.1fH%.1f", c.x(begin), c.y(v), c.x(end))
		}
		pen = true
	}
	if path.Len() > 0 {
		fmt.Fprintf(&c.b, `<path class="line %s" d="%s"/>`, class, path.String())
	}
}

// thin makes at most n steps of equal length of a line, each with the greatest value in it.
func thin(l stepLine, from, to int64, n int) stepLine {
	if len(l.v) <= n || to <= from {
		return l
	}
	out := stepLine{name: l.name, v: make([]float64, n), t: make([]int64, n+1)}
	for i := range out.v {
		out.v[i] = math.NaN()
	}
	for i := range out.t {
		out.t[i] = from + int64(float64(to-from)*float64(i)/float64(n))
	}
	for i, v := range l.v {
		first := int(float64(l.t[i]-from) / float64(to-from) * float64(n))
		last := int(float64(l.t[i+1]-from) / float64(to-from) * float64(n))
		for at := max(first, 0); at <= min(last, n-1); at++ {
			if math.IsNaN(out.v[at]) || v > out.v[at] {
				out.v[at] = v
			}
		}
	}
	return out
}
