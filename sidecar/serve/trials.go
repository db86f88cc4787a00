package serve

import (
	"encoding/json"
	"net/http"

	"github.com/likenessdb/likeness/sidecar/gain"
)

// showTrials answers with the experiments of the routes.
func (s *sidecar) showTrials(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.trials.Statuses())
}

// changeTrial returns a handler that changes the experiment of a route. The query parameters name the
// route and, for an experiment that begins, the version to try.
func changeTrial(change func(route, version string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, in *http.Request) {
		if err := change(in.URL.Query().Get("route"), in.URL.Query().Get("version")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// gains returns the measured gains of the models in service, by route. It leaves out routes without a
// measurement.
func (s *sidecar) gains(stateDir string) map[string]gain.State {
	all := map[string]gain.State{}
	for route := range s.events {
		measured, err := gain.Read(stateDir, route)
		if err != nil || measured == nil { // `likeness refit` says what is wrong with the file
			continue
		}
		if _, model, err := s.versions.Serving(route); err == nil && model == measured.Now.Model {
			all[route] = *measured
		}
	}
	return all
}
