package controller

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/dashboard"
)

// TestDashboardIsServed checks that everybody can load the page, and that its data needs a token.
func TestDashboardIsServed(t *testing.T) {
	r := run(t, testConfig(t, "memory"))
	get := func(path string) *http.Response {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		answer, err := client.Get(r.url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	for path, want := range map[string]int{
		"/": http.StatusFound, "/ui": http.StatusTemporaryRedirect, dashboard.Path: http.StatusOK, dashboard.Path + "dashboard.js": http.StatusOK,
		dashboard.Path + "none": http.StatusNotFound, dashboard.Path + "../api/v1/status": http.StatusUnauthorized, "/api/v1/status": http.StatusUnauthorized,
	} {
		answer := get(path)
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
		if want < 400 && want >= 300 && answer.Header.Get("Location") != dashboard.Path {
			t.Errorf("%s leads to %q", path, answer.Header.Get("Location"))
		}
	}
	if policy := get(dashboard.Path).Header.Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'self'") {
		t.Errorf("policy %q", policy)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
