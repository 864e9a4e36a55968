package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, path, etag string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	page := get(t, Path, "")
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "<title>Sluice</title>") {
		t.Fatalf("%s: %d", Path, page.Code)
	}
	if p := page.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
		t.Errorf("policy %q", p)
	}
	// What the page names is there, with a type that a browser accepts under nosniff.
	for _, m := range regexp.MustCompile(`(?:src|href)="\./([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		f := get(t, Path+m[1], "")
		kind := f.Header().Get("Content-Type")
		if f.Code != http.StatusOK || !strings.HasPrefix(kind, "text/javascript") && !strings.HasPrefix(kind, "text/css") {
			t.Errorf("%s: %d, %q", m[1], f.Code, kind)
		}
		if again := get(t, Path+m[1], f.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s unchanged: %d", m[1], again.Code)
		}
	}
	for _, path := range []string{"/ui/none", "/ui/../dashboard.go", "/ui/dist/index.html"} {
		if got := get(t, path, ""); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
}

// The page works where there is nothing but the controller.
func TestNothingFromElsewhere(t *testing.T) {
	files, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Errorf("%d files are embedded, want the page, its script and its style", len(files))
	}
	// Names of XML namespaces are no addresses.
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]+[^"'\x60\s]*`)
	for name, f := range files {
		for _, found := range elsewhere.FindAllString(string(f.content), -1) {
			if !strings.HasPrefix(found, "http://www.w3.org/") {
				t.Errorf("%s names %s", name, found)
			}
		}
	}
}
