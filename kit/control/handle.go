package control

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/internal/jsonlimit"
	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// maxBody bounds a request's body.
	maxBody = 64 << 10
	// gather is the time for which a record waits for further ones, so that many at once need few
	// events.
	gather = 20 * time.Millisecond
	// writeTimeout bounds the time to write one event to a reader.
	writeTimeout = 5 * time.Second
)

// Nothing is a request or an answer without a body.
type Nothing struct{}

// Handle makes a server answer requests that match a pattern, as in net/http. It refuses a body
// that is not an I. An error of f is answered as AsProblem converts it.
func Handle[I, O, R, L any](s *Server[R, L], pattern string, f func(*http.Request, I) (O, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in I
		err := read(w, r, &in)
		var out O
		if err == nil {
			out, err = f(r, in)
		}
		switch _, empty := any(out).(Nothing); {
		case err != nil:
			refuse(w, err)
		case empty:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
		}
	})
}

// read decodes a JSON body strictly.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	if _, empty := into.(*Nothing); empty {
		return nil
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = jsonlimit.Default.Decode(text, into)
	}
	if err != nil {
		return BadRequest("body", "%v", err)
	}
	return nil
}

// refuse answers a request with a problem document.
func refuse(w http.ResponseWriter, err error) {
	p := *AsProblem(err)
	if p.Status = statuses[p.Code]; p.Status == 0 {
		p.Status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// events streams an Event with the work in progress every second, and one with new records soon
// after they are made.
func (s *Server[R, L]) events(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := true
	for seen := uint64(0); ; {
		changed := s.journal.changed()
		e := Event[R, L]{Instance: s.instance, DrainRequests: s.drains.Load()}
		e.Status = s.Load()
		e.Ended, e.Seq = s.journal.since(seen)
		seen = e.Seq
		if live {
			e.Live, e.Drift = s.Live(), s.Drift()
		}
		if rc.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil || enc.Encode(e) != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
			live = true
		case <-changed:
			live = false
			if tasks.Sleep(r.Context(), gather) != nil {
				return
			}
		}
	}
}
