package egress

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed site
var files embed.FS

// contentTypes holds the types of the site's files, so that they do not depend on the machine's
// configuration.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// site serves the files of the web site.
func (g *Gateway) site(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch name {
	case "":
		name = "index.html"
	case "live":
		name = "live.html"
	case "live/": // from which relative addresses would lead elsewhere
		w.Header().Set("Location", "../live")
		w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	kind := contentTypes[path.Ext(name)]
	text, err := fs.ReadFile(files, path.Join("site", path.Clean("/"+name)))
	if err != nil || kind == "" {
		return newRefusal(http.StatusNotFound, "", "there is nothing at %.200q", r.URL.Path)
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", g.policy())
	h.Set("X-Frame-Options", "DENY")
	h.Set("Permissions-Policy", "camera=(self), microphone=(self), display-capture=(self)")
	if g.cfg.PublicTLS != nil { // browsers ignore the header without TLS, with a warning
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	_, _ = w.Write(text) // an error means that the client has gone
	return nil
}

// policy returns a Content-Security-Policy that lets the site's pages use their own files, and
// connect to any gateway, as gateways come and go while a page is open.
func (g *Gateway) policy() string {
	connect := "'self' https: wss:"
	if g.cfg.PublicTLS == nil {
		connect += " http: ws:"
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob:; connect-src " + connect +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
