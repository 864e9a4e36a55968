package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/internal/jsonlimit"
)

// What is read of a request.
const (
	maxOffer    = 64 << 10
	maxChange   = 4 << 10
	maxPassword = 72 // of bcrypt
)

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Handler answers viewers.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	only := func(pattern, method string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := error(nil)
			if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
				err = f(w, r)
			} else {
				w.Header().Set("Allow", method)
				err = refused(http.StatusMethodNotAllowed, "", "%s is not done here: want %s", r.Method, method)
			}
			if err != nil {
				refuse(w, err)
			}
		})
	}
	only("/whep/{channel}", http.MethodPost, g.whep)
	only("/whep/sessions/{id}", http.MethodDelete, g.bye)
	only("/whep/sessions/{id}/channel", http.MethodPut, g.zap)
	only("/ws/{channel}", http.MethodGet, g.light)
	only("/channels", http.MethodGet, g.channels)
	only("/thumbnails/{channel}", http.MethodGet, g.thumbnail)
	only("/", http.MethodGet, g.site)
	return g.guard(mux)
}

// guard bounds what an address may ask, and says on every answer what a browser may do with it.
func (g *Gateway) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &watched{ResponseWriter: w, g: g}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		// Players on other sites may use it: who is asked for a password says it in a header
		// that no browser adds by itself.
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "Location, Retry-After")
		if !g.limits.request(g.limits.address(r), time.Now()) {
			refuse(w, refused(http.StatusTooManyRequests, "", "more than %d requests a second from your address", perSecond))
			return
		}
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// watched counts answers that are refusals.
type watched struct {
	http.ResponseWriter
	g *Gateway
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.g.metrics.refuse(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// whep makes a viewer of an offer.
func (g *Gateway) whep(w http.ResponseWriter, r *http.Request) error {
	o := offer{channel: r.PathValue("channel"), from: g.limits.address(r), player: "whep"}
	if err := checkChannel(o.channel); err != nil {
		return err
	}
	body, err := read(w, r, "application/sdp", maxOffer)
	if err != nil {
		return err
	}
	o.open = func(v *viewer) (outlet, error) { return g.media.accept(string(body), v) }
	if o.password, err = password(r); err != nil {
		return err
	}
	v, answer, err := g.join(o)
	if err == errFull {
		if other := g.elsewhere(); other != "" {
			w.Header().Set("Location", strings.TrimSuffix(other, "/")+r.URL.EscapedPath())
			w.WriteHeader(http.StatusTemporaryRedirect)
			return nil
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Location", "/whep/sessions/"+v.secret)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer) // who does not get it does not connect
	return nil
}

// bye has a viewer leave.
func (g *Gateway) bye(w http.ResponseWriter, r *http.Request) error {
	v, err := g.viewer(r.PathValue("id"))
	if err != nil {
		return err
	}
	g.leave(v, "")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// zap changes a viewer's channel.
func (g *Gateway) zap(w http.ResponseWriter, r *http.Request) error {
	v, err := g.viewer(r.PathValue("id"))
	if err != nil {
		return err
	}
	body, err := read(w, r, "application/json", maxChange)
	if err != nil {
		return err
	}
	var to struct {
		Channel string `json:"channel"`
	}
	if err := strict(body, &to); err != nil {
		return refused(http.StatusBadRequest, "body", `%v: want {"channel": "name"}`, err)
	}
	if err := checkChannel(to.Channel); err != nil {
		return err
	}
	secret, err := password(r)
	if err != nil {
		return err
	}
	z, err := v.change(to.Channel, secret)
	if err != nil {
		return ofController(err, to.Channel)
	}
	return answer(w, z)
}

// lineup is what a page is told.
type lineup struct {
	gatewayapi.Lineup
	// Gateway is the name of the one that answers.
	Gateway string `json:"gateway"`
}

// channels says what there is to see.
func (g *Gateway) channels(w http.ResponseWriter, _ *http.Request) error {
	l := g.lineup.Load()
	if l == nil {
		return refused(http.StatusServiceUnavailable, "", "the controller has not said yet what there is to see")
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, lineup{*l, g.cfg.Name})
}

func answer(w http.ResponseWriter, x any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(x) // the client has gone, which it will notice
	return nil
}

// strict reads one JSON value that has nothing in it but what is known.
func strict(b []byte, to any) error {
	if err := jsonlimit.Default.Decode(b, to); err != nil {
		return fmt.Errorf("not what is known here: %w", err)
	}
	return nil
}

func checkChannel(name string) error {
	if !channelName.MatchString(name) {
		return refused(http.StatusBadRequest, "channel", "%.80q is no channel's name: want 1 to 63 lower-case letters, digits and dashes", name)
	}
	return nil
}

// read reads a body of a type and of at most so many bytes.
func read(w http.ResponseWriter, r *http.Request, kind string, most int64) ([]byte, error) {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != kind {
		return nil, refused(http.StatusUnsupportedMediaType, "Content-Type", "%.80q: want %s", r.Header.Get("Content-Type"), kind)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch _, long := err.(*http.MaxBytesError); {
	case long:
		return nil, refused(http.StatusRequestEntityTooLarge, "body", "more than %d bytes", most)
	case err != nil:
		return nil, refused(http.StatusBadRequest, "body", "%v", err)
	case len(body) == 0:
		return nil, refused(http.StatusBadRequest, "body", "empty: want %s", kind)
	}
	return body, nil
}

// password is what the request's Authorization says; empty if it says nothing.
func password(r *http.Request) (string, error) {
	h := r.Header.Get("Authorization")
	if h == "" {
		return "", nil
	}
	kind, secret, _ := strings.Cut(h, " ")
	if !strings.EqualFold(kind, "Bearer") || secret == "" {
		return "", refused(http.StatusUnauthorized, "Authorization", "want Bearer and the channel's password")
	}
	if len(secret) > maxPassword {
		return "", refused(http.StatusUnauthorized, "Authorization", "a password of more than %d bytes", maxPassword)
	}
	return secret, nil
}
