package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
)

// Authenticator decides by a token who may ask, and for which tenant. A nil one lets everybody
// in. It serves HTTP here; others that listen (for gRPC, say) call Check.
type Authenticator struct {
	// grants of tokens, by the token's hash: a look-up by it takes as long for a nearly right
	// token as for a wrong one.
	grants map[[sha256.Size]byte]grant
	// separate is whether there are tenants.
	separate bool
	refused  atomic.Uint64
	// readers are those of them that asked for something here, forbidden those whose token lacks a role for it.
	readers, forbidden turnedAway
}

// grant is what a token lets its bearer do. The tenant is "" where there are no tenants, and for the operator.
type grant struct {
	tenant string
	roles  Roles
}

// Bounds of a file of tokens.
const (
	minToken     = 16
	maxToken     = 512
	maxTokens    = 1000
	maxTokenFile = 1 << 20
)

// NewAuthenticator lets in who has one of the tokens. The keys are names of tenants; tokens under the key "" belong to
// none: they are the operator's where there are tenants. Each token is as a line of a file of tokens: "TOKEN" or "TOKEN
// role,role".
func NewAuthenticator(tokens map[string][]string) (*Authenticator, error) {
	a := &Authenticator{grants: map[[sha256.Size]byte]grant{}}
	for tenant := range tokens {
		a.separate = a.separate || tenant != ""
	}
	for tenant, own := range tokens {
		if tenant != "" && !IsTenant(tenant) {
			return nil, fmt.Errorf("tenant %q: want %s", tenant, tenantShape)
		}
		if tenant != "" && len(own) == 0 {
			return nil, fmt.Errorf("tenant %q has no token", tenant)
		}
		for i, entry := range own {
			if err := a.add(tenant, entry); err != nil {
				return nil, fmt.Errorf("token %d of %q %w", i+1, tenant, err)
			}
		}
	}
	if n := len(a.grants); n == 0 || n > maxTokens {
		return nil, fmt.Errorf("%d tokens: want 1 to %d", n, maxTokens)
	}
	return a, nil
}

// add takes in a token. The error goes on from "token 1 of a tenant".
func (a *Authenticator) add(tenant, entry string) error {
	most := a.most(tenant)
	token, roles, err := parseEntry(entry, most)
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, notInToken) {
		return fmt.Errorf("has %d bytes: want %d to %d printable ones without spaces, then roles after a space",
			len(token), minToken, maxToken)
	}
	if err != nil {
		return fmt.Errorf("has a wrong role: %w", err)
	}
	if more := roles &^ most; more != 0 {
		return fmt.Errorf("has the role %v: where there are tenants, their tokens send, read and record, and the operator's administer", more)
	}
	hash := sha256.Sum256([]byte(token))
	if other, ok := a.grants[hash]; ok {
		return fmt.Errorf("is that of %q already", other.tenant)
	}
	a.grants[hash] = grant{tenant, roles}
	return nil
}

// most are the roles that a tenant's tokens may have, and that those have which name none.
func (a *Authenticator) most(tenant string) Roles {
	switch {
	case !a.separate:
		return allRoles
	case tenant == "":
		return Administer
	}
	return tenantRoles
}

func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// ReadTokens reads a file with a token on each line, and after a space its roles, as in "TOKEN read,record"; a token
// without them has all. Empty lines and those that begin with # do not count.
func ReadTokens(path string) (*Authenticator, error) {
	tokens, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	return NewAuthenticator(map[string][]string{"": tokens})
}

func readTokens(path string) (tokens []string, err error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			tokens = append(tokens, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading tokens in %q: %w", path, err)
	}
	// What is wrong with them is told with their own file's name.
	if _, err := NewAuthenticator(map[string][]string{"": tokens}); err != nil {
		return nil, fmt.Errorf("reading tokens in %q: %w", path, err)
	}
	return tokens, nil
}

// ReadTenants reads a YAML file that maps each tenant to a list of its tokens, and, unless it is "", a file of tokens
// of the operator, who belongs to none.
func ReadTenants(path, operator string) (*Authenticator, error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, fmt.Errorf("reading tenants: %w", err)
	}
	tokens := map[string][]string{}
	if err := yaml.Unmarshal(text, &tokens); err != nil {
		return nil, fmt.Errorf("reading tenants in %q: %w", path, err)
	}
	if _, ok := tokens[""]; ok || len(tokens) == 0 {
		return nil, fmt.Errorf(`reading tenants in %q: want lines such as "shop: [TOKEN, TOKEN]"`, path)
	}
	if operator != "" {
		if tokens[""], err = readTokens(operator); err != nil {
			return nil, err
		}
	}
	a, err := NewAuthenticator(tokens)
	if err != nil {
		return nil, fmt.Errorf("reading tenants in %q: %w", path, err)
	}
	return a, nil
}

// isOperator is whether a token that Check found to be of this tenant is the operator's: of none, where there are
// tenants.
func (a *Authenticator) isOperator(tenant string) bool { return a.separate && tenant == "" }

// Senders is an Authenticator, which is not nil, for those who send: their tokens need that role.
type Senders struct{ *Authenticator }

// Check finds the tenant of a token that may send.
func (s Senders) Check(authorization string) (tenant string, ok bool) {
	g, ok := s.find(authorization)
	if !ok || g.roles&Send == 0 {
		s.refused.Add(1)
		return "", false
	}
	return g.tenant, true
}

// Tenants are the names of all tenants in order; nil where there are none.
func (a *Authenticator) Tenants() []string {
	if a == nil {
		return nil
	}
	var names []string
	for _, g := range a.grants {
		if g.tenant != "" {
			names = append(names, g.tenant)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Check finds the tenant of a request by its header "Authorization": "Bearer TOKEN", or "Basic
// ..." with the token as the password of any user.
func (a *Authenticator) Check(authorization string) (tenant string, ok bool) {
	g, ok := a.find(authorization)
	if !ok {
		a.refused.Add(1)
	}
	return g.tenant, ok
}

// find is what the token of a header "Authorization" may do.
func (a *Authenticator) find(authorization string) (g grant, ok bool) {
	if a == nil {
		return grant{roles: allRoles}, true
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	token = strings.TrimSpace(token)
	if strings.EqualFold(scheme, "Basic") && len(token) <= 2*maxToken {
		text, _ := base64.StdEncoding.DecodeString(token) // what is none has no token
		_, token, _ = strings.Cut(string(text), ":")
	} else if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	if token != "" && len(token) <= maxToken {
		g, ok = a.grants[sha256.Sum256([]byte(token))]
	}
	return g, ok
}

// Refused counts what Check refused, to senders and readers.
func (a *Authenticator) Refused() uint64 {
	if a == nil {
		return 0
	}
	return a.refused.Load()
}
