package gatewayapi

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden replaces the parts of a source that are not shown.
const Hidden = "…"

// safeParameters are the parameters of a source whose values are no secrets, and safeValue is
// the form of such a value. The values of all other parameters are hidden, because their
// meaning to a camera is not known.
var (
	safeParameters = []string{
		"fifo_size", "keyframes", "latency", "localport", "mode", "overrun_nonfatal", "pbkeylen", "pkt_size", "rate", "rtcpport", "size", "timeout",
	}
	safeValue = regexp.MustCompile(`^[0-9A-Za-z.]{1,16}$`)
)

// urlPattern matches what may be a source within other text: "scheme:" and everything up to a
// blank.
var urlPattern = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*:\S+`)

// RedactText returns a program's output without the secrets of sources that it contains.
func RedactText(text string) string {
	return urlPattern.ReplaceAllStringFunc(text, func(at string) string {
		address := strings.TrimRight(at, `.,:;'")]`)
		return RedactSource(address) + at[len(address):]
	})
}

// RedactSource returns a channel's source without its account, and without the values of
// parameters that are not known to be harmless. If it is not clear where these are, it returns
// only the scheme.
func RedactSource(source string) string {
	where, query, asks := strings.Cut(source, "?")
	scheme, _, _ := strings.Cut(where, ":")
	if isFile := scheme == "file" && !strings.HasPrefix(where, "file://"); isFile || !asks && !strings.Contains(where, "@") {
		return source
	}
	u, err := url.Parse(where)
	account := err == nil && u.User != nil
	switch {
	case err != nil, u.Opaque != "", u.Fragment != "", !account && (strings.Contains(u.Host, "@") || strings.Contains(query, "@")):
		return scheme + ":" + Hidden
	case account:
		where = scheme + "://" + Hidden + where[strings.LastIndexByte(where[:len(where)-len(afterHost(where))], '@'):]
	}
	if asks {
		where += "?" + redactQuery(query)
	}
	return where
}

// afterHost returns an address from its path on.
func afterHost(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}

// redactQuery returns a source's parameters without secrets. A parameter without a value may be
// a secret itself.
func redactQuery(query string) string {
	all := strings.Split(query, "&")
	for i, one := range all {
		key, value, ok := strings.Cut(one, "=")
		switch {
		case !ok || strings.Trim(value, "=") == "": // as base64 ends
			all[i] = Hidden
		case !slices.Contains(safeParameters, key) || !safeValue.MatchString(value):
			all[i] = key + "=" + Hidden
		}
	}
	return strings.Join(all, "&")
}
