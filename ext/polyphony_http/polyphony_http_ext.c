/* polyphony_http_ext.c - what `require 'polyphony/http'` loads. */
#include "http1_ruby.h"
#include "polyphony_http.h"

VALUE mHTTP;

void Init_counts(void);
void Init_lobby(void);
void Init_peer(void);
void Init_proxy_protocol(void);
void Init_rack(void);
void Init_tls_transport(void);
void Init_sendfile(void);
void Init_websocket(void);

RUBY_FUNC_EXPORTED void Init_polyphony_http_ext(void);

void Init_polyphony_http_ext(void) {
  mHTTP = rb_define_module_under(rb_define_module("Polyphony"), "HTTP");
  rb_gc_register_mark_object(mHTTP);
  Init_counts();
  Init_lobby();
  Init_peer();
  Init_proxy_protocol();
  Init_tls_transport();
  Init_http1_parser();
  Init_http1_head();
  Init_http1_response();
  Init_http2_session();
  Init_rack();
  Init_sendfile();
  Init_websocket();
}
