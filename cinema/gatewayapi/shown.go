package gatewayapi

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden stands for what is not shown of a source.
const Hidden = "…"

// shownParameters are those of a source whose values are no secrets, shownValue what such a value
// looks like. All others are hidden: what a camera's mean is not known here.
var (
	shownParameters = []string{
		"fifo_size", "keyframes", "latency", "localport", "mode", "overrun_nonfatal", "pbkeylen", "pkt_size", "rate", "rtcpport", "size", "timeout",
	}
	shownValue = regexp.MustCompile(`^[0-9A-Za-z.]{1,16}$`)
)

// addresses are what may be sources, in a text of others: "scheme:" and all up to a blank.
var addresses = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*:\S+`)

// ShownText is what a program says, without the secrets of sources that it names.
func ShownText(text string) string {
	return addresses.ReplaceAllStringFunc(text, func(at string) string {
		address := strings.TrimRight(at, `.,:;'")]`)
		return ShownSource(address) + at[len(address):]
	})
}

// ShownSource is a channel's source as people may see it: without its account, and without the
// values of its parameters, but for those that are known to be harmless. Of one in which it is
// not clear where they stand the scheme is left.
func ShownSource(source string) string {
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
		where += "?" + shownQuery(query)
	}
	return where
}

// afterHost is the rest of an address from its path on.
func afterHost(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}

// shownQuery is a source's parameters. One without a value may be a secret itself.
func shownQuery(query string) string {
	all := strings.Split(query, "&")
	for i, one := range all {
		key, value, is := strings.Cut(one, "=")
		switch {
		case !is || strings.Trim(value, "=") == "": // as base64 ends
			all[i] = Hidden
		case !slices.Contains(shownParameters, key) || !shownValue.MatchString(value):
			all[i] = key + "=" + Hidden
		}
	}
	return strings.Join(all, "&")
}
