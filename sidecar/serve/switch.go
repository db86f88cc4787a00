package serve

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// showSwitches answers with the state of every route of the proxy: on or off.
func showSwitches(r *routing.Router) http.Handler {
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

// switchRoutes switches the route in the query parameter on or off, or all routes if none is named.
// It answers like showSwitches.
func switchRoutes(r *routing.Router, off bool, log *slog.Logger) http.Handler {
	tell := showSwitches(r)
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		route := in.URL.Query().Get("route")
		if err := r.Switch(route, off); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		log.WarnContext(in.Context(), "proxy switched", "route", route, "off", off)
		tell.ServeHTTP(w, in)
	})
}
