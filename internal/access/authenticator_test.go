package access

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	tokenA = "aaaaaaaaaaaaaaaa-1"
	tokenB = "bbbbbbbbbbbbbbbb-1"
	tokenC = "cccccccccccccccc-1"
)

func TestCheckFindsTheTenantOfAToken(t *testing.T) {
	a, err := NewAuthenticator(map[string][]string{"shop": {tokenA, tokenA + "2"}, "bank": {tokenB}})
	if err != nil {
		t.Fatal(err)
	}
	refused := uint64(0)
	f := func(header, tenant string, ok bool) {
		t.Helper()
		if got, in := a.Check(header); got != tenant || in != ok {
			t.Errorf("%q: got %q, %v", header, got, in)
		}
		if !ok {
			refused++
		}
		if a.Refused() != refused {
			t.Errorf("%q: %d refused, want %d", header, a.Refused(), refused)
		}
	}
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	f("Bearer "+tokenA, "shop", true)
	f("bearer  "+tokenA+"2", "shop", true)
	f("Bearer "+tokenB, "bank", true)
	f(basic("anybody", tokenB), "bank", true)
	f(basic("", tokenA), "shop", true)
	f("", "", false)
	f(tokenA, "", false)
	f("Bearer", "", false)
	f("Bearer "+tokenA+"3", "", false)
	f("Digest "+tokenA, "", false)
	f("Basic "+tokenA, "", false)
	f(basic(tokenA, ""), "", false)
	f("Bearer "+strings.Repeat("x", 1<<20), "", false)
	f("Basic "+strings.Repeat("x", 1<<20), "", false)
	if got := a.Tenants(); !slices.Equal(got, []string{"bank", "shop"}) {
		t.Errorf("tenants %q", got)
	}
	if tenant, ok := (*Authenticator)(nil).Check(""); tenant != "" || !ok {
		t.Errorf("nobody to ask: got %q, %v", tenant, ok)
	}
}

func TestFilesOfTokens(t *testing.T) {
	f := func(read func(string) (*Authenticator, error), text, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := read(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: got %v, want %q", text, err, want)
		}
	}
	f(ReadTokens, "# page\n\n  "+tokenA+"\r\n"+tokenB+"\n", "")
	f(ReadTokens, "\n# none\n", "0 tokens")
	f(ReadTokens, "short", "has 5 bytes")
	f(ReadTokens, "with spaces in between", "printable ones without spaces")
	f(ReadTokens, tokenA+"\n"+tokenA, "is that of")
	f(ReadTokens, strings.Repeat("#", maxTokenFile+1), "has more than 1048576 bytes")
	ofTenants := func(path string) (*Authenticator, error) { return ReadTenants(path, "") }
	f(ofTenants, "shop: ["+tokenA+"]\nbank:\n- "+tokenB+"\n", "")
	f(ofTenants, "", "want lines such as")
	f(ofTenants, "shop: ["+tokenA+"]\nbank: ["+tokenA+"]", "already")
	f(ofTenants, "shop: ["+tokenA+"]\nshop: ["+tokenB+"]", "already defined")
	f(ofTenants, "shop: []", `tenant "shop" has no token`)
	f(ofTenants, "a/b: ["+tokenA+"]", `tenant "a/b"`)
	f(ofTenants, `"": [`+tokenA+`]`, "want lines such as")
	f(ofTenants, "shop: {token: x}", "reading tenants")
	operator := filepath.Join(t.TempDir(), "operator")
	if err := os.WriteFile(operator, []byte(tokenB+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	withOperator := func(path string) (*Authenticator, error) {
		a, err := ReadTenants(path, operator)
		if err != nil {
			return a, err
		}
		for token, want := range map[string]bool{tokenA: false, tokenB: true} {
			if tenant, ok := a.Check("Bearer " + token); !ok || a.isOperator(tenant) != want {
				t.Errorf("%s is of %q, %v, want the operator: %v", token, tenant, ok, want)
			}
		}
		if got := a.Tenants(); len(got) != 1 || got[0] != "shop" {
			t.Errorf("tenants %q", got)
		}
		return a, nil
	}
	f(withOperator, "shop: ["+tokenA+"]", "")
	f(withOperator, "shop: ["+tokenB+"]", "already")
	f(func(path string) (*Authenticator, error) { return ReadTenants(path, path+".none") }, "shop: ["+tokenA+"]",
		"reading tokens")
	if err := os.WriteFile(operator, []byte("# nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(withOperator, "shop: ["+tokenA+"]", fmt.Sprintf("reading tokens in %q: 0 tokens", operator))
	var many strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&many, "token-number-%08d\n", i)
	}
	f(ReadTokens, many.String(), "1001 tokens: want 1 to 1000")
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has tokens")
	}
}
