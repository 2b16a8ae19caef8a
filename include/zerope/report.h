/* report.h: pictures and pages from JSON documents; knows nothing of models. */
#ifndef ZEROPE_REPORT_H
#define ZEROPE_REPORT_H

#include <zerope/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gate heat map (layer x KV head by pair) of a SCAN, PLAN or inspect document: path ends in .svg or
 * .png. */
ZP_API zp_status zp_report_heatmap(const char *json, const char *path, zp_err *err);
/* Tokens per second against depth, of a bench document: path ends in .svg or .png. */
ZP_API zp_status zp_report_speed(const char *json, const char *path, zp_err *err);
/* One self-contained HTML page of a verify document (pictures inline). */
ZP_API zp_status zp_report_verify_html(const char *json, const char *path, zp_err *err);
/* What a training run did, of a document of zp_train_run_json: curves of its numbers, gates closed
 * by layer and step. path ends in .svg, .png or .html (a self-contained page: also command,
 * options, the last numbers, events by layer). */
ZP_API zp_status zp_report_run(const char *json, const char *path, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
