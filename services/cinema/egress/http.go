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

	"github.com/sluice-net/sluice/internal/jsonlimit"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Bounds of a request's parts, in bytes: an SDP offer, the body of a change of channel, a password.
const (
	maxOffer    = 64 << 10
	maxChange   = 4 << 10
	maxPassword = 72 // the limit of bcrypt
)

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Handler returns the handler for viewers' requests.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, method string, f func(http.ResponseWriter, *http.Request) error) {
		answer := func(w http.ResponseWriter, r *http.Request) {
			err := error(nil)
			if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
				err = f(w, r)
			} else {
				w.Header().Set("Allow", method)
				err = newRefusal(http.StatusMethodNotAllowed, "", "%s is not done here: want %s", r.Method, method)
			}
			if err != nil {
				writeRefusal(w, err)
			}
		}
		mux.HandleFunc(pattern, answer)
		if pattern != "/" {
			mux.HandleFunc(pattern+"/{$}", answer) // programs and people append a slash
		}
	}
	handle("/whep/{channel}", http.MethodPost, g.whep)
	handle("/whep/sessions/{id}", http.MethodDelete, g.deleteSession)
	handle("/whep/sessions/{id}/channel", http.MethodPut, g.changeChannel)
	handle("/ws/{channel}", http.MethodGet, g.serveWebSocket)
	handle("/channels", http.MethodGet, g.listChannels)
	handle("/thumbnails/{channel}", http.MethodGet, g.thumbnail)
	handle("/", http.MethodGet, g.site)
	return g.withLimits(mux)
}

// withLimits limits the requests of each address, and sets the headers that browsers need on
// every answer.
func (g *Gateway) withLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &refusalCounter{ResponseWriter: w, g: g}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		// Players on other sites may use the gateway, because browsers never send a password on
		// their own.
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "Location, Retry-After")
		if !g.limits.request(g.limits.address(r), time.Now()) {
			writeRefusal(w, newRefusal(http.StatusTooManyRequests, "", "more than %d requests a second from your address", maxRequestRate))
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

// refusalCounter counts answers that are refusals.
type refusalCounter struct {
	http.ResponseWriter
	g *Gateway
}

// WriteHeader implements http.ResponseWriter.
func (w *refusalCounter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.g.metrics.refuse(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *refusalCounter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// whep adds a viewer for an SDP offer.
func (g *Gateway) whep(w http.ResponseWriter, r *http.Request) error {
	o := joinRequest{channel: r.PathValue("channel"), from: g.limits.address(r), player: "whep"}
	if err := checkChannel(o.channel); err != nil {
		return err
	}
	body, err := readBody(w, r, "application/sdp", maxOffer)
	if err != nil {
		return err
	}
	o.open = func(v *viewer) (sink, error) { return g.transport.accept(string(body), v) }
	if o.password, err = bearerPassword(r); err != nil {
		return err
	}
	v, answer, err := g.join(o)
	if err == errFull {
		if other := g.otherGateway(); other != "" {
			w.Header().Set("Location", strings.TrimSuffix(other, "/")+r.URL.EscapedPath())
			w.WriteHeader(http.StatusTemporaryRedirect)
			return nil
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/sdp")
	// The address is relative, because a reverse proxy may have the gateway below a prefix.
	base := ""
	if strings.HasSuffix(r.URL.Path, "/") {
		base = "../"
	}
	w.Header().Set("Location", base+"sessions/"+v.secret)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer) // a client that does not get it does not connect
	return nil
}

// deleteSession ends a viewer's session.
func (g *Gateway) deleteSession(w http.ResponseWriter, r *http.Request) error {
	v, err := g.viewer(r.PathValue("id"))
	if err != nil {
		return err
	}
	g.endViewer(v, "")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// changeChannel changes a viewer's channel.
func (g *Gateway) changeChannel(w http.ResponseWriter, r *http.Request) error {
	v, err := g.viewer(r.PathValue("id"))
	if err != nil {
		return err
	}
	body, err := readBody(w, r, "application/json", maxChange)
	if err != nil {
		return err
	}
	var to struct {
		Channel string `json:"channel"`
	}
	if err := decodeStrict(body, &to); err != nil {
		return newRefusal(http.StatusBadRequest, "body", `%v: want {"channel": "name"}`, err)
	}
	if err := checkChannel(to.Channel); err != nil {
		return err
	}
	secret, err := bearerPassword(r)
	if err != nil {
		return err
	}
	z, err := v.change(to.Channel, secret)
	if err != nil {
		return controllerRefusal(err, to.Channel)
	}
	return writeJSON(w, z)
}

// lineupPage is the answer to a request for the lineup.
type lineupPage struct {
	gatewayapi.Lineup
	// Gateway is the name of the gateway that answers.
	Gateway string `json:"gateway"`
}

// listChannels answers with the lineup.
func (g *Gateway) listChannels(w http.ResponseWriter, r *http.Request) error {
	l := g.currentLineup(r.Context())
	if l == nil {
		return newRefusal(http.StatusServiceUnavailable, "", "the controller has not said yet what there is to see")
	}
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, lineupPage{*l, g.cfg.Name})
}

func writeJSON(w http.ResponseWriter, x any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(x) // an error means that the client has gone
	return nil
}

// decodeStrict decodes one JSON value, and returns an error for unknown fields.
func decodeStrict(b []byte, to any) error {
	if err := jsonlimit.Default.Decode(b, to); err != nil {
		return fmt.Errorf("not what is known here: %w", err)
	}
	return nil
}

func checkChannel(name string) error {
	if !channelName.MatchString(name) {
		return newRefusal(http.StatusBadRequest, "channel", "%.80q is no channel's name: want 1 to 63 lower-case letters, digits and dashes", name)
	}
	return nil
}

// readBody reads a body of the given type and of at most the given number of bytes.
func readBody(w http.ResponseWriter, r *http.Request, kind string, most int64) ([]byte, error) {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != kind {
		return nil, newRefusal(http.StatusUnsupportedMediaType, "Content-Type", "%.80q: want %s", r.Header.Get("Content-Type"), kind)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch _, long := err.(*http.MaxBytesError); {
	case long:
		return nil, newRefusal(http.StatusRequestEntityTooLarge, "body", "more than %d bytes", most)
	case err != nil:
		return nil, newRefusal(http.StatusBadRequest, "body", "%v", err)
	case len(body) == 0:
		return nil, newRefusal(http.StatusBadRequest, "body", "empty: want %s", kind)
	}
	return body, nil
}

// bearerPassword returns the password of the Authorization header, or "" if there is none.
func bearerPassword(r *http.Request) (string, error) {
	h := r.Header.Get("Authorization")
	if h == "" {
		return "", nil
	}
	kind, secret, _ := strings.Cut(h, " ")
	if !strings.EqualFold(kind, "Bearer") || secret == "" {
		return "", newRefusal(http.StatusUnauthorized, "Authorization", "want Bearer and the channel's password")
	}
	if len(secret) > maxPassword {
		return "", newRefusal(http.StatusUnauthorized, "Authorization", "a password of more than %d bytes", maxPassword)
	}
	return secret, nil
}
