package serve

import (
	"encoding/json"
	"net/http"
)

// showTrials answers with the experiments of the routes.
func (s *sidecar) showTrials(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.trials.Statuses())
}

// changeTrial returns a handler that changes the experiment of the route in the query parameter.
func changeTrial(change func(route string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, in *http.Request) {
		if err := change(in.URL.Query().Get("route")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
