package demo

import (
	"io"
	"net/http"
)

// gateway is the door to the services behind it; it adds nothing of its own but the checkout,
// which needs two of them.
type gateway struct {
	catalogue, cart, payment *peer
}

func newGateway(f serviceFlags, l *ledger) *role {
	g := &gateway{
		catalogue: newPeer("catalogue", f.catalogue, l),
		cart:      newPeer("cart", f.cart, l),
		payment:   newPeer("payment", f.payment, l),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products", g.forward(g.catalogue))
	mux.HandleFunc("GET /products/{id}", g.forward(g.catalogue))
	mux.HandleFunc("GET /cart/{user}", g.forward(g.cart))
	mux.HandleFunc("POST /cart/{user}", g.forward(g.cart))
	mux.HandleFunc("POST /checkout/{user}", g.checkout)
	return &role{handler: mux, closeIdle: []func(){
		g.catalogue.closeIdle, g.cart.closeIdle, g.payment.closeIdle,
	}}
}

func (g *gateway) forward(to *peer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			respondError(w, http.StatusBadRequest, err)
			return
		}
		answer, err := to.do(r.Context(), r.Method, r.URL.RequestURI(), body)
		if err != nil {
			respondError(w, http.StatusBadGateway, err)
			return
		}
		respond(w, answer.status, "application/json", answer.body)
	}
}

// checkout pays for what is in the cart and empties it.
func (g *gateway) checkout(w http.ResponseWriter, r *http.Request) {
	path := "/cart/" + r.PathValue("user")
	items, err := g.cart.get(r.Context(), http.MethodGet, path, nil)
	if err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	receipt, err := g.payment.get(r.Context(), http.MethodPost, "/pay", items)
	if err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	if _, err := g.cart.get(r.Context(), http.MethodDelete, path, nil); err != nil {
		respondError(w, http.StatusBadGateway, err)
		return
	}
	respondJSON(w, receipt)
}
