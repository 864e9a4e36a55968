package api

import (
	"context"
	"slices"
)

// tokenIdentity is the prefix of identities from tokens.
const tokenIdentity = "token:"

// tokenSet is the set of tokens that are accepted at one time.
type tokenSet struct {
	all       []Token
	withdrawn chan struct{} // closed when the set is replaced
}

func newTokenSet(all []Token) *tokenSet {
	return &tokenSet{slices.Clone(all), make(chan struct{})}
}

// SetTokens replaces the accepted tokens. Requests in progress continue, but streams of events
// that were opened with a token end, and their consumers need a new token to open them again.
// SetTokens does nothing if the tokens are the same as before. It must not be called
// concurrently.
func (a *API) SetTokens(all []Token) {
	old := a.tokens.Load()
	if slices.Equal(old.all, all) {
		return
	}
	a.tokens.Store(newTokenSet(all))
	close(old.withdrawn)
}

type tokensKey struct{}

// withdrawn returns a channel that is closed when the token of the context's request has been
// replaced. It is nil for a request without a token.
func withdrawn(ctx context.Context) <-chan struct{} {
	if set, ok := ctx.Value(tokensKey{}).(*tokenSet); ok {
		return set.withdrawn
	}
	return nil
}
