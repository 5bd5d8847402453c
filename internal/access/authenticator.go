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

// Authenticator finds the tenant and the roles of a token. A nil one allows everybody. It serves HTTP here; other
// listeners (such as gRPC) call Check.
type Authenticator struct {
	// grants by the hash of the token: a look-up takes the same time for a nearly right token as for a wrong one.
	grants map[[sha256.Size]byte]grant
	// separate means that there are tenants.
	separate bool
	refused  atomic.Uint64
	// readers counts refusals of readers without a valid token, forbidden those whose token lacks the role.
	readers, forbidden refusalCount
}

// grant is what a token allows. The tenant is "" without tenants, and for the operator.
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

// NewAuthenticator accepts the given tokens. The keys are names of tenants; with tenants, tokens under the key "" are
// the operator's. A token is written as in a file of tokens: "TOKEN" or "TOKEN role,role".
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

// add adds a token. Its error is to be prefixed with the number and the tenant of the token.
func (a *Authenticator) add(tenant, entry string) error {
	most := a.defaultRoles(tenant)
	token, roles, err := parseEntry(entry, most)
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, isNotTokenByte) {
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

// defaultRoles are the roles that a token of a tenant may have, and that it has if it names none.
func (a *Authenticator) defaultRoles(tenant string) Roles {
	switch {
	case !a.separate:
		return allRoles
	case tenant == "":
		return Administer
	}
	return tenantRoles
}

func isNotTokenByte(r rune) bool { return r <= ' ' || r > '~' }

// ReadTokens reads a file with a token on each line, followed by a space and its roles, as in "TOKEN read,record"; a
// token without roles has all. Empty lines and those that begin with # are skipped.
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
	// Errors in them name their own file.
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

// isOperator reports whether a token that Check found to be of this tenant is the operator's: it has no tenant although
// there are tenants.
func (a *Authenticator) isOperator(tenant string) bool { return a.separate && tenant == "" }

// Senders is a non-nil Authenticator for senders: their tokens need the role Send.
type Senders struct{ *Authenticator }

// Check returns the tenant of a token that has the role Send.
func (s Senders) Check(authorization string) (tenant string, ok bool) {
	g, ok := s.find(authorization)
	if !ok || g.roles&Send == 0 {
		s.refused.Add(1)
		return "", false
	}
	return g.tenant, true
}

// Tenants returns the sorted names of all tenants; nil without tenants.
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

// Check returns the tenant of a request by its header "Authorization": "Bearer TOKEN", or "Basic ..." with the token as
// the password of any user.
func (a *Authenticator) Check(authorization string) (tenant string, ok bool) {
	g, ok := a.find(authorization)
	if !ok {
		a.refused.Add(1)
	}
	return g.tenant, ok
}

// find returns the grant of a header "Authorization".
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

// Refused counts the requests of senders and readers that Check refused.
func (a *Authenticator) Refused() uint64 {
	if a == nil {
		return 0
	}
	return a.refused.Load()
}
