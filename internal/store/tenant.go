package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Readable is what a Tenant reads: a Store or a Remote.
type Readable interface {
	Evaluate(context.Context, Evaluation) (Answer, error)
	Find(context.Context, Lookup) (Answer, error)
	Format(query string) (string, error)
	Hold(tenant string, n int64) (release func(), err error)
	RemoteRead(w http.ResponseWriter, r *http.Request, tenant string) error
}

// Tenant is one tenant's view of a store: whatever is asked, only series with its label are read.
type Tenant struct {
	store Readable
	name  string
}

// ForTenant is the view of the tenant of this name, which must not be empty.
func ForTenant(store Readable, name string) *Tenant {
	if name == "" {
		panic("BUG: a tenant without a name would read everybody's series")
	}
	return &Tenant{store, name}
}

// Evaluate is Store.Evaluate over the tenant's series.
func (t *Tenant) Evaluate(ctx context.Context, e Evaluation) (Answer, error) {
	e.Tenant = t.name
	return t.store.Evaluate(ctx, e)
}

// Find is Store.Find over the tenant's series.
func (t *Tenant) Find(ctx context.Context, l Lookup) (Answer, error) {
	l.Tenant = t.name
	return t.store.Find(ctx, l)
}

// RemoteRead is Store.RemoteRead over the tenant's series, whatever tenant is asked for.
func (t *Tenant) RemoteRead(w http.ResponseWriter, r *http.Request, _ string) error {
	return t.store.RemoteRead(w, r, t.name)
}

// Format is Store.Format.
func (t *Tenant) Format(query string) (string, error) { return t.store.Format(query) }

func tenantMatcher(tenant string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, TenantLabel, tenant)
}

// ofTenant reads the series of one tenant alone. It stands below the query engine, so that no way
// of writing a query leads past it.
type ofTenant struct {
	storage.SampleAndChunkQueryable
	tenant string
}

// queryable is what a query of this tenant reads, and everything where tenant is empty.
func (s *Store) queryable(tenant string) storage.SampleAndChunkQueryable {
	if tenant == "" {
		return s.db
	}
	return ofTenant{s.db, tenant}
}

func (o ofTenant) Querier(from, to int64) (storage.Querier, error) {
	q, err := o.SampleAndChunkQueryable.Querier(from, to)
	if err != nil {
		return nil, err
	}
	return tenantQuerier{q, tenantMatcher(o.tenant)}, nil
}

func (o ofTenant) ChunkQuerier(from, to int64) (storage.ChunkQuerier, error) {
	q, err := o.SampleAndChunkQueryable.ChunkQuerier(from, to)
	if err != nil {
		return nil, err
	}
	return tenantChunkQuerier{q, tenantMatcher(o.tenant)}, nil
}

type tenantQuerier struct {
	storage.Querier
	own *labels.Matcher
}

func with(own *labels.Matcher, matchers []*labels.Matcher) []*labels.Matcher {
	return append(slices.Clip(matchers), own)
}

func (q tenantQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	return q.Querier.Select(ctx, sorted, hints, with(q.own, matchers)...)
}

func (q tenantQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.Querier.LabelValues(ctx, name, hints, with(q.own, matchers)...)
}

func (q tenantQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.Querier.LabelNames(ctx, hints, with(q.own, matchers)...)
}

// tenantChunkQuerier is tenantQuerier for readers of chunks.
type tenantChunkQuerier struct {
	storage.ChunkQuerier
	own *labels.Matcher
}

func (q tenantChunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.ChunkSeriesSet {
	return q.ChunkQuerier.Select(ctx, sorted, hints, with(q.own, matchers)...)
}

func (q tenantChunkQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.ChunkQuerier.LabelValues(ctx, name, hints, with(q.own, matchers)...)
}

func (q tenantChunkQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.ChunkQuerier.LabelNames(ctx, hints, with(q.own, matchers)...)
}

// scope makes every selector of a query that another system will evaluate one of a tenant.
func scope(expr parser.Expr, tenant string) {
	own := tenantMatcher(tenant)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			selector.LabelMatchers = append(slices.Clip(selector.LabelMatchers), own)
		}
		return nil
	})
}

var errNotScoped = errors.New("a selector has no matcher of the tenant")

// checkScoped reads a query as the other system will, and fails unless every selector in it is
// one of the tenant.
func checkScoped(p parser.Parser, query, tenant string) error {
	expr, err := p.ParseExpr(query)
	if err != nil {
		return fmt.Errorf("BUG: %q cannot be read again: %w", query, err)
	}
	selectors, own := 0, 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			selectors++
			if slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Type == labels.MatchEqual && m.Name == TenantLabel && m.Value == tenant
			}) {
				own++
			}
		}
		return nil
	})
	if own != selectors {
		return fmt.Errorf("BUG: %q: %w", query, errNotScoped)
	}
	return nil
}
