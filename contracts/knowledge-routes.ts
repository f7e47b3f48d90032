/** Routes of a deployment's services: knowledge (interface 4.7; decisions, Deployment services). */
export const knowledgeRoutes = {} as const;
