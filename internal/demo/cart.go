package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	maxCartItems = 20
	maxCarts     = 10_000
)

// cart keeps what each customer is about to buy, in Redis or, without it, in memory.
type cart struct {
	redis *redisClient // nil: in memory

	mu    sync.Mutex // guards carts
	carts map[string][]string
}

func newCart(f serviceFlags, l *ledger) *role {
	c := &cart{carts: map[string][]string{}}
	r := &role{}
	if f.redis != "" {
		c.redis = newRedisClient(f.redis, l)
		r.closeIdle = []func(){c.redis.closeIdle}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cart/{user}", c.list)
	mux.HandleFunc("POST /cart/{user}", c.add)
	mux.HandleFunc("DELETE /cart/{user}", c.empty)
	r.handler = mux
	return r
}

func (c *cart) list(w http.ResponseWriter, r *http.Request) {
	items, err := c.items(r.Context(), r.PathValue("user"))
	if err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	b, err := json.Marshal(map[string]any{"user": r.PathValue("user"), "items": items})
	if err != nil {
		respondError(w, http.StatusInternalServerError, err)
		return
	}
	respondJSON(w, b)
}

func (c *cart) add(w http.ResponseWriter, r *http.Request) {
	item, err := io.ReadAll(r.Body)
	if err == nil && !json.Valid(item) {
		err = fmt.Errorf("not an item: %.40q", item)
	}
	if err != nil {
		respondError(w, http.StatusBadRequest, err)
		return
	}
	if err := c.append(r.Context(), r.PathValue("user"), string(item)); err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	respondJSON(w, []byte(`{"added":1}`))
}

func (c *cart) empty(w http.ResponseWriter, r *http.Request) {
	if err := c.remove(r.Context(), r.PathValue("user")); err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	respondJSON(w, []byte(`{"emptied":true}`))
}

func (c *cart) items(ctx context.Context, user string) ([]string, error) {
	if c.redis == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return append([]string{}, c.carts[user]...), nil
	}
	value, err := c.redis.do(ctx, "LRANGE", "cart:"+user, "0", "-1")
	if err != nil {
		return nil, err
	}
	list, _ := value.([]any)
	items := make([]string, len(list))
	for i := range list {
		items[i], _ = list[i].(string)
	}
	return items, nil
}

// append adds an item; the oldest of more than maxCartItems fall out.
func (c *cart) append(ctx context.Context, user, item string) error {
	if c.redis == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, known := c.carts[user]; !known && len(c.carts) >= maxCarts {
			return fmt.Errorf("more than %d carts", maxCarts)
		}
		items := append(c.carts[user], item)
		c.carts[user] = items[max(0, len(items)-maxCartItems):]
		return nil
	}
	if _, err := c.redis.do(ctx, "RPUSH", "cart:"+user, item); err != nil {
		return err
	}
	_, err := c.redis.do(ctx, "LTRIM", "cart:"+user, fmt.Sprint(-maxCartItems), "-1")
	return err
}

func (c *cart) remove(ctx context.Context, user string) error {
	if c.redis == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.carts, user)
		return nil
	}
	_, err := c.redis.do(ctx, "DEL", "cart:"+user)
	return err
}
