package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	products        = 500
	productsPerPage = 20
	cacheTime       = 3 * time.Second
	stallTime       = 80 * time.Millisecond
	// The time between stalls is spread evenly over these.
	minStallGap, maxStallGap = 4 * time.Second, 6 * time.Second
	maxStalls                = 256
)

// catalogue answers with products, from Redis where it has them. It has a fault: every few
// seconds it holds its lock for stallTime.
type catalogue struct {
	redis  *redisClient // nil: no cache
	random *rand.Rand   // used by run alone

	world sync.RWMutex // read by every request, held by a stall

	mu     sync.Mutex // guards stalls and total
	stalls []Stall
	total  uint64
}

func newCatalogue(f serviceFlags, l *ledger) *role {
	c := &catalogue{random: rand.New(rand.NewPCG(f.seed, 2))}
	r := &role{run: c.run, report: c.report}
	if f.redis != "" {
		c.redis = newRedisClient(f.redis, l)
		r.closeIdle = []func(){c.redis.closeIdle}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products", c.page)
	mux.HandleFunc("GET /products/{id}", c.product)
	mux.HandleFunc("GET /stalls", c.serveStalls)
	r.handler = mux
	return r
}

func (c *catalogue) page(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || n < 0 || n >= products/productsPerPage {
		respondError(w, http.StatusBadRequest, fmt.Errorf("no page %q", r.URL.Query().Get("page")))
		return
	}
	c.answer(w, r, "page:"+strconv.Itoa(n), n*productsPerPage, (n+1)*productsPerPage)
}

func (c *catalogue) product(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || n < 0 || n >= products {
		respondError(w, http.StatusNotFound, fmt.Errorf("no product %q", r.PathValue("id")))
		return
	}
	c.answer(w, r, "product:"+strconv.Itoa(n), n, n+1)
}

// answer sends products first to end-1, kept in Redis under key.
func (c *catalogue) answer(w http.ResponseWriter, r *http.Request, key string, first, end int) {
	c.world.RLock()
	defer c.world.RUnlock()
	body, err := c.cached(r.Context(), key, func() []byte { return describe(first, end) })
	if err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	respondJSON(w, body)
}

func (c *catalogue) cached(ctx context.Context, key string, build func() []byte) ([]byte, error) {
	if c.redis == nil {
		return build(), nil
	}
	value, err := c.redis.do(ctx, "GET", key)
	if err != nil {
		return nil, err
	}
	if s, ok := value.(string); ok {
		return []byte(s), nil
	}
	body := build()
	_, err = c.redis.do(ctx, "SET", key, string(body), "PX", strconv.FormatInt(cacheTime.Milliseconds(), 10))
	return body, err
}

// describe makes up products; the same number is always the same product.
func describe(first, end int) []byte {
	type product struct {
		ID          int    `json:"id"`
		Name        string `json:"name"`
		Cents       int    `json:"cents"`
		Description string `json:"description"`
	}
	words := []string{"oak", "brass", "hand", "made", "light", "strong", "blue", "linen", "for", "every", "day", "and"}
	list := make([]product, 0, end-first)
	for i := first; i < end; i++ {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		text := make([]string, 20+random.IntN(150))
		for j := range text {
			text[j] = words[random.IntN(len(words))]
		}
		list = append(list, product{i, words[i%len(words)] + " " + strconv.Itoa(i), 100 + random.IntN(9900),
			strings.Join(text, " ")})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic("BUG: a product that cannot be written: " + err.Error())
	}
	return b
}

// run stalls now and then until ctx ends.
func (c *catalogue) run(ctx context.Context) {
	for {
		gap := minStallGap + time.Duration(c.random.Int64N(int64(maxStallGap-minStallGap)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
			c.stall()
		}
	}
}

func (c *catalogue) stall() {
	c.world.Lock()
	s := Stall{Start: time.Now()}
	time.Sleep(stallTime)
	s.End = time.Now()
	c.world.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.stalls = append(c.stalls, s)
	if len(c.stalls) > maxStalls {
		c.stalls = append(c.stalls[:0], c.stalls[1:]...)
	}
}

func (c *catalogue) stallReport() *StallReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &StallReport{Total: c.total, Stalls: append([]Stall{}, c.stalls...)}
}

func (c *catalogue) report(s *Status) { s.Stalls = c.stallReport() }

func (c *catalogue) serveStalls(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(c.stallReport())
	if err != nil {
		respondError(w, http.StatusInternalServerError, err)
		return
	}
	respondJSON(w, b)
}
