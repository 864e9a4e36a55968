package api

import (
	"embed"
	"io/fs"
	"net/http"
)

// viewer holds the files of the viewer of the OpenAPI document: a page, its script and its style. They
// are embedded in this binary, so that the viewer works without the internet.
//
//go:embed docs
var viewer embed.FS

func (a *API) registerViewer() {
	files, err := fs.Sub(viewer, "docs")
	if err != nil {
		panic("api: the embedded viewer is not there: " + err.Error()) // go:embed would have failed
	}
	serve := http.StripPrefix("/docs/", http.FileServerFS(files))
	a.HandlePublic("GET /docs/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		serve.ServeHTTP(w, r)
	}))
	a.HandlePublic("GET /docs", http.RedirectHandler("/docs/", http.StatusMovedPermanently))
}
