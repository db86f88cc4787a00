package serve

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// switches tells of every route before the proxy whether it is switched off.
func switches(r *routing.Router) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := map[string]string{}
		for route, off := range r.Off() {
			state[route] = "on"
			if off {
				state[route] = "off"
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(state)
	})
}

// switching switches the route of the query argument off or on, or every route
// where there is no argument, and tells how they stand.
func switching(r *routing.Router, off bool, log *slog.Logger) http.Handler {
	tell := switches(r)
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		route := in.URL.Query().Get("route")
		if err := r.Switch(route, off); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		log.WarnContext(in.Context(), "the proxy was switched", "route", route, "off", off)
		tell.ServeHTTP(w, in)
	})
}
