package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"outsight/internal/store"
)

func devPrometheus(st *store.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		num := func(k string) float64 { v, _ := strconv.ParseFloat(r.FormValue(k), 64); return v }
		at := func(k string) time.Time { return time.UnixMilli(int64(num(k) * 1e3)) }
		res, err := st.Range(r.Context(), r.FormValue("query"), at("start"), at("end"), time.Duration(num("step")*1e9))
		if err != nil {
			writeError(w, 400, "%s", err)
			return
		}
		type series struct {
			Metric map[string]string `json:"metric"`
			Values [][2]any          `json:"values"`
		}
		out := []series{}
		for _, x := range res {
			s := series{Metric: x.Labels}
			for _, p := range x.Points {
				s.Values = append(s.Values, [2]any{float64(p.Time.UnixMilli()) / 1e3, strconv.FormatFloat(p.Value, 'g', -1, 64)})
			}
			out = append(out, s)
		}
		json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": out}})
	})
}
